#!/bin/bash
docker run -d --name "vllm-$(date +%s)" --gpus all \
  -e "API_KEY=$(cat /run/secrets/key)" --user "$(id -u):$(id -g)" \
  vllm/vllm-openai@sha256:3dbe092ec5b2cef63b6104d33fa75d6ce53a7870962529ada69f78bbbc38e776 \
  --model "$MODEL" --api-key "$API_KEY"
