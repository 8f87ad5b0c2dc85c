/* dequant_codebook.h -- one block of each format whose quants point into a table, for dequant_ref.c
 * only. `from` may have any alignment. */
#ifndef WEFT_CPU_DEQUANT_CODEBOOK_H
#define WEFT_CPU_DEQUANT_CODEBOOK_H

#include <stdint.h>

void iq4_xs_block(const uint8_t *from, float *to);
void iq3_xxs_block(const uint8_t *from, float *to);
void iq3_s_block(const uint8_t *from, float *to);
void iq2_xxs_block(const uint8_t *from, float *to);
void iq2_xs_block(const uint8_t *from, float *to);
void iq2_s_block(const uint8_t *from, float *to);
void iq1_s_block(const uint8_t *from, float *to);
void iq1_m_block(const uint8_t *from, float *to);
void tq1_0_block(const uint8_t *from, float *to);
void tq2_0_block(const uint8_t *from, float *to);
void mxfp4_block(const uint8_t *from, float *to);
void nvfp4_block(const uint8_t *from, float *to);

#endif
