"""Flags of XLA for programs of JAX, most of whose time is compilation: they run a few steps."""

FAST_COMPILATION = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
