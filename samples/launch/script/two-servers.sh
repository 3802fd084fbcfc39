#!/bin/bash
# one GPU each
docker run -d --name a --gpus '"device=0"' -p 8001:8000 vllm/vllm-openai:v0.23.0 --model org/a
docker run -d --name b --gpus '"device=1"' -p 8002:8000 vllm/vllm-openai:v0.23.0 --model org/b --max-model-len 8192
docker run -d --name proxy -p 80:80 nginx:1.29
