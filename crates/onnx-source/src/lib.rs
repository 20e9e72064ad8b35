//! Preflight and metadata of ONNX driving models.
