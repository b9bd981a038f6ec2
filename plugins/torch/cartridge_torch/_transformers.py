"""Load what transformers keeps in a folder; nothing is fetched, and none of its code is run."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, cast

import torch  # noqa: TID253 -- one of the private files that import the backend
from transformers import (  # noqa: TID253 -- as above
    AutoTokenizer,
    BaseImageProcessor,
    PreTrainedModel,
)

from cartridge_core.errors import LoadError
from cartridge_torch._torch import choose_device

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sized
    from pathlib import Path

    from transformers import PreTrainedTokenizerBase

    from cartridge_torch.options import LoadOptions

__all__ = ["check_tokenizer", "load_image_processor", "load_model", "load_tokenizer"]

M = TypeVar("M", bound=PreTrainedModel)
P = TypeVar("P", bound=BaseImageProcessor)
_SHOWN = 3


def load_model(kind: type[M], path: Path, options: LoadOptions) -> M:
    """
    Load a model.

    Raises:
        LoadError: The device is not there, or the weights are not those of such a model:
            transformers would make up what they lack.
    """
    device = choose_device(options.device)
    loaded: object = kind.from_pretrained(
        str(path),
        local_files_only=True,
        use_safetensors=True,
        ignore_mismatched_sizes=True,  # they are refused here, by name
        output_loading_info=True,
    )
    model, report = cast("tuple[M, Mapping[str, Iterable[object]]]", loaded)
    wrong = ("missing_keys", "mismatched_keys")
    lacking = [str(key) for name in wrong for key in sorted(report[name], key=str)]
    if lacking:
        names = ", ".join(lacking[:_SHOWN]) + (", ..." if len(lacking) > _SHOWN else "")
        msg = (
            f"model {path}: its weights are not those of a {kind.__name__}: {len(lacking)} are "
            f"missing or of another shape ({names}); download the whole model"
        )
        raise LoadError(msg)
    module: torch.nn.Module = model
    module.to(device, getattr(torch, options.dtype)).eval()
    return model


def load_image_processor(kind: type[P], path: Path) -> P:
    """
    Load what makes numbers of pictures.

    Args:
        kind: The class that works with Pillow: the others need torchvision.
        path: The model's folder.
    """
    load: Callable[..., P] = kind.from_pretrained
    return load(str(path), local_files_only=True)


def load_tokenizer(path: Path) -> PreTrainedTokenizerBase:
    """
    Load a tokenizer.

    Raises:
        LoadError: It has no words.
    """
    tokenizer = AutoTokenizer.from_pretrained(
        str(path), local_files_only=True, trust_remote_code=False
    )
    check_tokenizer(path, tokenizer)
    return tokenizer


def check_tokenizer(path: Path, tokenizer: Sized) -> None:
    """
    Refuse a tokenizer without words: transformers makes one where its files are missing.

    Args:
        path: The model's folder.
        tokenizer: What was loaded from there; its length is the number of its tokens.

    Raises:
        LoadError: It has no other tokens than special ones.
    """
    special = getattr(tokenizer, "all_special_ids", None)
    if special is not None and len(tokenizer) <= len(special):
        msg = f"model {path}: it has no tokenizer; download tokenizer.json or vocab.txt too"
        raise LoadError(msg)
