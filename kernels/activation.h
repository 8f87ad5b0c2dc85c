/* activation.h -- what a feed-forward network does to its hidden values. */
#ifndef WEFT_ACTIVATION_H
#define WEFT_ACTIVATION_H

enum activation {
    ACTIVATION_SILU,       /* x / (1 + exp(-x)) */
    ACTIVATION_GELU,       /* x / 2 (1 + erf(x / sqrt 2)) */
    ACTIVATION_GELU_TANH,  /* gelu_new, gelu_pytorch_tanh, gelu_fast: by the hyperbolic tangent */
    ACTIVATION_GELU_QUICK, /* x / (1 + exp(-1.702 x)) */
    ACTIVATION_RELU,
    ACTIVATION_SWIGLU_OAI, /* GPT-OSS: gate up to a limit, up within it and plus 1, quick GELU */
    ACTIVATION_COUNT,
};

#endif
