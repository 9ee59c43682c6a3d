"""Model and optimizer configs of Levanter as literals, and the sizes of Llama and the tokenizers of Marin's experiments."""

def llama(**fields):
    """A Llama. What is left out has Levanter's default, and analysis checks every field."""
    return {"type": "llama"} | fields

def apertus(**fields):
    """An Apertus."""
    return {"type": "apertus"} | fields

def gemma(**fields):
    """A Gemma."""
    return {"type": "gemma"} | fields

def gemma2(**fields):
    """A Gemma 2."""
    return {"type": "gemma2"} | fields

def gemma3(**fields):
    """A Gemma 3."""
    return {"type": "gemma3"} | fields

def gpt2(**fields):
    """A GPT-2."""
    return {"type": "gpt2"} | fields

def mistral(**fields):
    """A Mistral."""
    return {"type": "mistral"} | fields

def olmo2(**fields):
    """An OLMo 2."""
    return {"type": "olmo2"} | fields

def olmo3(**fields):
    """An OLMo 3."""
    return {"type": "olmo3"} | fields

def qwen(**fields):
    """A Qwen 2, which is its name in Hugging Face folders."""
    return {"type": "qwen"} | fields

def qwen3(**fields):
    """A Qwen 3."""
    return {"type": "qwen3"} | fields

def qwen3_moe(**fields):
    """A Qwen 3 with experts."""
    return {"type": "qwen3_moe"} | fields

def adam(**fields):
    """Adam. `warmup` and `decay` of at most 1.0 are fractions of the run, of 2 and more steps."""
    return {"type": "adam"} | fields

def adamH(**fields):
    """AdamH."""
    return {"type": "adamH"} | fields

def adopt(**fields):
    """ADOPT."""
    return {"type": "adopt"} | fields

def cautious(**fields):
    """Cautious Adam."""
    return {"type": "cautious"} | fields

def grug_muon(**fields):
    """Grug's Muon."""
    return {"type": "grug_muon"} | fields

def kron(**fields):
    """PSGD Kron."""
    return {"type": "kron"} | fields

def lion(**fields):
    """Lion."""
    return {"type": "lion"} | fields

def mars(**fields):
    """MARS."""
    return {"type": "mars"} | fields

def mini(**fields):
    """Adam-mini."""
    return {"type": "mini"} | fields

def muon(**fields):
    """Muon."""
    return {"type": "muon"} | fields

def muonH(**fields):
    """MuonH."""
    return {"type": "muonH"} | fields

def namo(**fields):
    """NAMO."""
    return {"type": "namo"} | fields

def namoD(**fields):
    """NAMO-D."""
    return {"type": "namoD"} | fields

def rmsprop(**fields):
    """RMSprop."""
    return {"type": "rmsprop"} | fields

def scion(**fields):
    """Scion."""
    return {"type": "scion"} | fields

def soap(**fields):
    """SOAP."""
    return {"type": "soap"} | fields

# Rotary embeddings of Llama 3 and 3.1.
LLAMA3_ROPE = {"type": "llama3"}
LLAMA3_1_ROPE = {
    "type": "llama3",
    "theta": 500000.0,
    "factor": 8.0,
    "high_freq_factor": 4.0,
    "low_freq_factor": 1.0,
    "original_max_position_embeddings": 8192,
}

def _size(seq, hidden, intermediate, heads, kv_heads, layers, **fields):
    return llama(
        max_seq_len = seq,
        hidden_dim = hidden,
        intermediate_dim = intermediate,
        num_heads = heads,
        num_kv_heads = kv_heads,
        num_layers = layers,
        **fields
    )

llama_nano = _size(512, 32, 128, 2, 2, 2)
llama_30m = _size(1024, 128, 448, 2, 2, 4)
llama_50m = _size(1024, 192, 448, 2, 2, 4)
llama_75m = _size(1024, 256, 896, 4, 4, 8)
llama_150m = _size(1024, 512, 1792, 8, 8, 6)
llama_300m = _size(1024, 768, 2688, 12, 12, 12)
llama_600m = _size(1024, 1024, 3584, 16, 8, 24)
llama_1_4b = _size(4096, 2048, 7168, 16, 8, 16)
llama_1_9b = _size(4096, 2048, 7168, 16, 8, 24)
llama_3_2_1b = _size(4096, 2048, 8192, 32, 8, 16, tie_word_embeddings = True, rope = LLAMA3_ROPE)
llama_3_5b = _size(4096, 2560, 8960, 20, 10, 32)
llama_8b = _size(4096, 4096, 14336, 32, 8, 32, rope = LLAMA3_ROPE)
llama_8b_old_rotary = _size(4096, 4096, 14336, 32, 8, 32)
llama_3_1_8b = _size(4096, 4096, 14336, 32, 8, 32, rope = LLAMA3_1_ROPE)
llama_13b = _size(4096, 5120, 13824, 40, 8, 40)
llama_24b = _size(4096, 6144, 16384, 48, 16, 56)
llama_32b = _size(4096, 5120, 27648, 40, 8, 64)
llama_56b = _size(4096, 8192, 28672, 64, 8, 64)
llama_70b = _size(4096, 8192, 28672, 64, 8, 80)

# Model repos of the Hub, for `tokenizer` of a corpus.
llama3_tokenizer = "meta-llama/Meta-Llama-3.1-8B"
llama3_instruct_tokenizer = "meta-llama/Meta-Llama-3.1-8B-Instruct"
marin_tokenizer = "marin-community/marin-tokenizer"
