#!/bin/bash
export VLLM_USE_FLASHINFER_MOE_FP4=0
export HF_HUB_OFFLINE=1
source ~/venv/bin/activate
CUDA_VISIBLE_DEVICES=0 VLLM_ATTENTION_BACKEND=FLASHINFER exec vllm serve /models/nemotron \
    --served-model-name nemotron \
    --kv-cache-dtype fp8 \
    -tp 1
