#!/bin/bash
if [ "$1" = "fast" ]; then
    vllm serve org/model --max-num-seqs 256
else
    vllm serve org/model --enforce-eager
fi
