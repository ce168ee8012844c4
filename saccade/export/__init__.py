"""DETECTOR -> GRAPH -> one step, whatever computes it: torch, onnxruntime, OpenVINO, a compiled package; int8."""
