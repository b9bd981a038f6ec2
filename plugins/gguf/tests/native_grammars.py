"""
Follow grammars with llama.cpp itself; run in a process of its own, which may die of it.

Reads grammars from standard input, one JSON string a line, and answers each with a line: null where
llama.cpp refuses it, else the bytes that it let through, token by token at random, as hexadecimal
digits; after them ``.`` where the text could end and did, ``!`` where no token at all was allowed.
"""

from __future__ import annotations

import ctypes
import json
import math
import random
import sys


def main(model_path: str, tokens: int) -> None:
    """Answer line by line."""
    import llama_cpp

    log = llama_cpp.llama_log_callback(lambda _level, _text, _data: None)
    llama_cpp.llama_log_set(log, ctypes.c_void_p())
    parameters = llama_cpp.llama_model_default_params()
    parameters.vocab_only = True
    model = llama_cpp.llama_model_load_from_file(model_path.encode(), parameters)
    assert model
    vocabulary = llama_cpp.llama_model_get_vocab(model)
    assert vocabulary
    pieces = []
    buffer = ctypes.create_string_buffer(256)
    for token in range(llama_cpp.llama_vocab_n_tokens(vocabulary)):
        size = llama_cpp.llama_token_to_piece(vocabulary, token, buffer, 256, 0, True)
        pieces.append(buffer.raw[:size])
    data = (llama_cpp.llama_token_data * len(pieces))()
    candidates = llama_cpp.llama_token_data_array(data, len(pieces), -1, False)

    def follow(sampler: llama_cpp.llama_sampler_p, chance: random.Random) -> str:
        text = b""
        for _ in range(tokens):
            for token, entry in enumerate(data):
                entry.id, entry.logit = token, 0
            llama_cpp.llama_sampler_apply(sampler, candidates)
            allowed = [int(entry.id) for entry in data if math.isfinite(entry.logit)]
            if not allowed:
                return f"{text.hex()}!"
            plain = [token for token in allowed if pieces[token].isascii()]
            token = chance.choice(plain if plain and chance.random() < 0.9 else allowed)
            if llama_cpp.llama_vocab_is_eog(vocabulary, token):
                return f"{text.hex()}."
            text += pieces[token]
            llama_cpp.llama_sampler_accept(sampler, token)
        return text.hex()

    for line in sys.stdin:
        grammar = json.loads(line).encode()
        chance = random.Random(line)  # noqa: S311 -- the same every time
        sampler = llama_cpp.llama_sampler_init_grammar(vocabulary, grammar, b"root")
        sys.stdout.write(f"{json.dumps(follow(sampler, chance) if sampler else None)}\n")
        sys.stdout.flush()
        if sampler:
            llama_cpp.llama_sampler_free(sampler)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
