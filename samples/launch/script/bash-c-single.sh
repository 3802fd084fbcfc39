docker run --gpus all nvcr.io/nvidia/vllm:25.12-py3 bash -lc 'vllm serve nvidia/Llama-3.3-70B-Instruct-FP4 --quantization modelopt --port 8000'
