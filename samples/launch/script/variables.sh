#!/bin/bash
IMAGE="vllm/vllm-openai:v0.22.0"   # pinned by hand
MODEL='Qwen/Qwen3-Next-80B-A3B-Instruct-FP8'
PORT=${PORT:-8000}
MAX_LEN=65536
CACHE="${HF_HOME:-$HOME/.cache/huggingface}"

docker stop qwen 2>/dev/null || true
docker rm qwen 2>/dev/null || true

docker run -d --name qwen --restart unless-stopped \
    --gpus '"device=0,1"' --shm-size 16g \
    -p "${PORT}:8000" \
    -v "$CACHE:/root/.cache/huggingface" \
    "$IMAGE" \
    --model "$MODEL" \
    --tensor-parallel-size 2 \
    --max-model-len $MAX_LEN \
    --gpu-memory-utilization 0.92

echo "serving ${MODEL} on ${PORT}"
