#!/bin/bash
# Nemotron-3-Super on one DGX Spark
docker run -d --rm --name nemotron \
  --gpus all --ipc=host \
  -v ~/.cache/huggingface:/root/.cache/huggingface \
  -p 8000:8000 \
  vllm/vllm-openai:v0.20.0-cu130 \
  --model nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4 --trust-remote-code \
  --speculative_config '{"method":"mtp","num_speculative_tokens":2}'
