#!/bin/bash
podman run -d --replace --name vllm \
  --device nvidia.com/gpu=all --security-opt=label=disable \
  --ipc=host -v /data/hf:/root/.cache/huggingface:Z \
  docker.io/vllm/vllm-openai:v0.21.0 \
  --model mistralai/Mistral-Small-3.2-24B-Instruct-2506 --tokenizer-mode mistral
