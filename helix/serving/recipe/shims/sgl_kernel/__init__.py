"""Stands in for SGLang's kernels, of which no CPU build is on the package index.

SGLang imports some names of kernels at its start that the plain decoding of a Llama model on `torch_native` attention
never calls. They can be imported here; a call says what is missing.
"""

__version__ = "0.0.0"


def __getattr__(name):
    if not name.endswith("_cpu"):
        raise AttributeError(name)

    def missing(*args, **options):
        raise NotImplementedError(f"sgl_kernel.{name}: this SGLang runs without compiled kernels")

    return missing
