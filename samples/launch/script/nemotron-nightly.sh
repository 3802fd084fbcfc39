#!/usr/bin/env bash
set -euo pipefail

docker pull vllm/vllm-openai:cu130-nightly
docker run --rm -it --gpus all --ipc=host -p 8000:8000 \
	-e HF_TOKEN=$HF_TOKEN \
	-v "$HOME/.cache/huggingface":/root/.cache/huggingface \
	vllm/vllm-openai:cu130-nightly \
	nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4 \
	--max-model-len 131072 \
	--speculative-config '{"method": "mtp", "num_speculative_tokens": 3}' \
	2>&1 | tee serve.log
