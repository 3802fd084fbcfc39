#!/bin/bash
docker run --gpus all -it --rm --shm-size=1g --ulimit memlock=-1 --ulimit stack=67108864 \
  -p 8000:8000 nvcr.io/nvidia/vllm:26.03.post1-py3 \
  vllm serve "nvidia/Llama-3.1-8B-Instruct-FP8" --swap-space 4
