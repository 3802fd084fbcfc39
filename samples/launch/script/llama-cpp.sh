docker run -d --gpus all -v /srv/gguf:/models -p 8080:8080 \
  ghcr.io/ggml-org/llama.cpp:server-cuda \
  -m /models/qwen3-30b-q4.gguf -c 32768 -ngl 99 --host 0.0.0.0 --port 8080 -fa on
