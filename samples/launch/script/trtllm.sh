docker run --rm -it --ipc host --gpus all --ulimit memlock=-1 --ulimit stack=67108864 -p 8000:8000 \
  nvcr.io/nvidia/tensorrt-llm/release:1.2.0 \
  trtllm-serve "nvidia/Qwen3-8B-FP8" --max_batch_size 64 --kv_cache_free_gpu_memory_fraction 0.85
