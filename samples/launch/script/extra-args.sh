#!/bin/sh
EXTRA="--enforce-eager --max-num-seqs 8"
docker run --gpus all --network=host --ipc=host \
  -v /srv/models:/models:ro \
  vllm/vllm-openai:v0.17.1 --model /models/llama $EXTRA --port 8001
