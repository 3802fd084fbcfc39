nohup env CUDA_VISIBLE_DEVICES=1 python3 -m vllm.entrypoints.openai.api_server \
   --model=org/model --port=8002 > vllm.log 2>&1 &
echo $! > vllm.pid
