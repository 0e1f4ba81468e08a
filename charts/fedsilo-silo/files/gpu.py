"""`helm test`: the trainer's image finds the GPU that the Silo's agents ask for, with the resources that they get."""

import sys


def main():
    """The exit code: 0 when PyTorch has computed on a GPU, 1 when it finds none or cannot use it."""
    import torch

    if not torch.cuda.is_available():
        print(
            f"PyTorch {torch.__version__} finds no GPU in this pod, although agent.resources asks for one: look at the "
            "node's driver (nvidia-smi) and the cluster's device plug-in, and name a trainer image whose CUDA fits."
        )
        return 1
    try:
        torch.ones(2, device="cuda").sum().item()
    except RuntimeError as error:
        print(
            f"PyTorch {torch.__version__} finds {torch.cuda.get_device_name(0)} and cannot use it "
            f"({str(error).splitlines()[0]}): name a trainer image whose CUDA fits the node's driver."
        )
        return 1
    print(f"PyTorch {torch.__version__} computes on {torch.cuda.get_device_name(0)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
