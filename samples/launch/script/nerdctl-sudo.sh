sudo -E nerdctl run -d --gpus all --shm-size=8g -p 8000:8000 vllm/vllm-openai:v0.18.0 --model facebook/opt-125m
