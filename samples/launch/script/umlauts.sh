#!/bin/bash
# Größe für die Spark: äußerst wichtig ✓
docker run --gpus all --label "für=Prüfung ✓" \
  vllm/vllm-openai:v0.24.0 --model org/modell --served-model-name 'Größe ✓'
