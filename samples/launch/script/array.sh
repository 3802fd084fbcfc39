#!/bin/bash
ARGS=(
  --model openai/gpt-oss-120b
  --served-model-name gpt-oss   # what clients ask for
  --max-num-seqs 64
  # --enforce-eager
  --tool-call-parser openai --enable-auto-tool-choice
)
RUN=(--gpus all --ipc=host -p 127.0.0.1:8000:8000)
exec docker run --name gpt-oss "${RUN[@]}" \
  vllm/vllm-openai:v0.19.1 "${ARGS[@]}"
