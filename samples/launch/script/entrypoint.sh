docker run --gpus all -p 8000:8000 --entrypoint python3 \
  vllm/vllm-openai:v0.10.2 \
  -m vllm.entrypoints.openai.api_server --model meta-llama/Llama-3.1-8B-Instruct \
  --rope-scaling '{"rope_type":"yarn","factor":4.0}'
