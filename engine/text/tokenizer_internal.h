/* tokenizer_internal.h -- what a tokenizer is made of, for the files that make one.
 *
 *     text -> well-formed UTF-8 -> special tokens | stretches of plain text -> normalizer
 *          -> (special tokens of the normalized text) -> pre-tokenizer -> model -> ids
 */
#ifndef WEFT_TOKENIZER_INTERNAL_H
#define WEFT_TOKENIZER_INTERNAL_H

#include "engine/text/merge.h"
#include "engine/text/normalizer.h"
#include "engine/text/pretokenizer.h"
#include "engine/text/specials.h"
#include "engine/text/tokenizer.h"
#include "engine/text/tokenizer_bpe.h"
#include "engine/text/tokenizer_spm.h"
#include "engine/text/tokenizer_unigram.h"
#include "engine/text/tokenizer_words.h"
#include "engine/text/vocabulary.h"

enum { TOKENIZER_ENDS_MAX = 16, TOKENIZER_AFFIX_MAX = 8 };

/* What one encoding thread needs. */
struct encode_work {
    struct merge_work merge;
    struct normalizer_work normalizer;
    struct pretokenizer_work pretokenizer;
    struct buf text; /* a model's own */
};

/* The part that turns a piece into tokens. */
struct token_model {
    void *data;
    int (*encode)(const void *data, const char *piece, size_t bytes, struct encode_work *work,
                  struct tokens *tokens);
    void (*close)(void *data);
};

/* Tokens that are put before or after a text. */
struct token_affix {
    int32_t ids[TOKENIZER_AFFIX_MAX];
    uint32_t count;
};

/* How tokens become text, beyond the bytes of each. */
struct decode_rules {
    enum {
        START_AS_IS,
        START_WITHOUT_SPACE,  /* one space at the start of the whole text goes */
        START_WITHOUT_ANY,    /* a space of each token goes until the text has begun */
        START_WITHOUT_SPACES, /* every space of the first token goes */
        START_WITH_KEY,       /* the first token is its key: no space stands before it */
    } start;
    enum {
        BYTES_LOSSY,    /* one U+FFFD for each maximal ill-formed part of the whole text */
        BYTES_BY_RUN,   /* a run of byte tokens that is not UTF-8 is one U+FFFD for each byte */
        BYTES_BY_TOKEN, /* a byte token that is part of no character is one U+FFFD */
    } bytes;
    bool hides_controls;    /* control tokens add nothing */
    bool end_without_space; /* one space at the end goes */
};

struct tokenizer {
    struct vocabulary vocabulary;
    struct specials specials;            /* looked for in the text as it stands */
    struct specials normalized_specials; /* and in the normalized one */
    struct normalizer *normalizer;       /* NULL: none */
    struct pretokenizer *pretokenizer;   /* NULL: a text is one piece */
    struct token_model model;
    struct token_affix before;
    struct token_affix after;
    struct decode_rules decode;
    bool reads_controls_as_text; /* the makers' library recognizes no control token in a text */
    int32_t bos;                 /* -1: none */
    int32_t eos;
    uint32_t end_count;
    int32_t ends[TOKENIZER_ENDS_MAX];
};

/* An empty one; the makers fill it in. */
int tokenizer_open_empty(struct tokenizer **ret_tokenizer, struct fault *fault);
void tokenizer_add_end(struct tokenizer *tokenizer, int32_t id); /* -1 and known ones: nothing */
/* Takes the model. */
void tokenizer_use_bpe(struct tokenizer *tokenizer, struct bpe *bpe);
void tokenizer_use_spm(struct tokenizer *tokenizer, struct spm *spm);
void tokenizer_use_unigram(struct tokenizer *tokenizer, struct unigram *unigram);
void tokenizer_use_words(struct tokenizer *tokenizer, struct words *words);
/* Files often name one end token only, while the model also ends with others. */
void tokenizer_add_known_ends(struct tokenizer *tokenizer);

/* What goes with a name in GGUF's tokenizer.ggml.pre, and its pre-tokenizer. E_UNSUPPORTED for a
 * name that is not known. */
struct pretokenizer_traits {
    bool whole_pieces;   /* a piece that is a token by itself is not merged */
    bool whole_newlines; /* the same for newlines alone */
    bool adds_bos;       /* unless the file says otherwise */
    bool adds_sep;
    bool nfc;            /* text is brought into normalization form C first */
    bool raw;            /* pieces are plain UTF-8, not GPT-2's alphabet */
    bool escapes_spaces; /* U+2581 stands for a space */
};
int pretokenizer_traits_gguf(struct gguf_string name, struct pretokenizer_traits *ret_traits,
                             struct fault *fault);
int pretokenizer_open_gguf(struct gguf_string name, struct pretokenizer **ret_pretokenizer,
                           struct fault *fault);

#endif
