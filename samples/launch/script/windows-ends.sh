#!/bin/bash
docker run --gpus all vllm/vllm-openai:v0.20.0 --model org/model
