#!/bin/bash
start() {
  local port=$1
  docker run -d --gpus all -p "$port":8000 \
    --log-opt max-size=50m \
    vllm/vllm-openai:v0.25.1 --model org/model
}
start 8000
