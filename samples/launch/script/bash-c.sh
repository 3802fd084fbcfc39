docker run -d --gpus all --ipc host -p 8000:8000 --entrypoint /bin/bash \
  vllm/vllm-openai:nightly -c "pip install -q mistral-common && \
    exec vllm serve Qwen/Qwen3-32B \
    --max-model-len 40960 \
    --compilation-config '{\"cudagraph_mode\":\"PIECEWISE\"}'"
