vllm serve org/model \
  --max-model-len 8192 \
  # --enforce-eager \
  --port 8001
