/* hf_quantization.h -- quantized checkpoints of Transformers: several tensors become one weight.
 *
 *     X.weight  F8_E4M3, X.weight_scale_inv           fp8 (DeepSeek: a scale for each 128 x 128)
 *     X.weight  F8_E4M3 or I8, X.weight_scale,        compressed-tensors: float-, naive- and
 *               X.weight_zero_point, X.input_scale    int-quantized
 *     X.weight_packed, X.weight_scale,                compressed-tensors: pack-quantized, 4 bit
 *               X.weight_shape, X.weight_zero_point, X.weight_g_idx
 *     X.qweight, X.qzeros, X.scales, X.g_idx          gptq (both checkpoint formats), awq (gemm)
 *     X_blocks, X_scales                              mxfp4
 *
 * Each such set is replaced by one tensor X.weight with `tables` (quant_tables.h); its dimensions
 * are those of the weight: [columns, rows], for mxfp4 [columns, rows, experts] (not transposed, as
 * GPT-OSS's X in BF16 is: hence the other name). What is quantized is told by the tensors that are
 * there, so a module that the config excludes, and that has a plain X.weight, stays as it is.
 * Scales of activations are left aside: activations are not quantized. */
#ifndef WEFT_HF_QUANTIZATION_H
#define WEFT_HF_QUANTIZATION_H

#include "config/base/fault.h"
#include "engine/stored_tensor.h"

struct hf_quantization; /* owns the tables and the names of new tensors */

/* `config` is the text of config.json, whose quantization_config names the method; one that is no
 * JSON is left to others to refuse. `tensors` are rewritten in place and *count lowered.
 * *ret_quantization stays NULL where nothing is quantized; it must live as long as the tensors.
 * Faults: a method, a number of bits or a packing that is not read (by name); a table that is
 * missing or misshapen (by its tensor's name). */
int hf_quantization_apply(const char *config, size_t bytes, struct stored_tensor *tensors,
                          uint32_t *count, struct hf_quantization **ret_quantization,
                          struct fault *fault);
void hf_quantization_close(struct hf_quantization *quantization); /* NULL is fine */

#endif
