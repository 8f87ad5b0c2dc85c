#!/usr/bin/env python3
"""Makes tests/data/tokenizers.json.xz: small tokenizers of every kind, and what their makers'
libraries make of texts.

    pip install tokenizers==0.23.3 sentencepiece==0.2.3
    python tests/golden/make_tokenizers.py

Each entry has a `tokenizer` (a tokenizer.json) or a `model` (a sentencepiece model, in base64),
and cases in the form of the reference data: ids, with special tokens added, with those in the text
as plain text, decoded. All of them learn from the texts below, so no two parts are alike by chance
only. Without the libraries nothing is made.
"""

import base64
import json
import lzma
import pathlib
import random
import tempfile

try:
    import sentencepiece
    from tokenizers import (
        AddedToken,
        Regex,
        Tokenizer,
        decoders,
        models,
        normalizers,
        pre_tokenizers,
        processors,
        trainers,
    )
except ImportError:
    sentencepiece = None

TARGET = pathlib.Path(__file__).resolve().parents[1] / "data/tokenizers.json.xz"
SPACE = "\u2581"
SPECIAL = ["<unk>", "<s>", "</s>"]
LEARNED = [
    "A loom holds the warp threads while the weft thread goes back and forth between them.",
    "It's 12345 o'clock, isn't it? They've 1,234,567 looms; we're done!  Two  spaces.",
    "def weave(warp, weft):\n    return [warp[i] + weft for i in range(len(warp))]\n\n",
    "caf\u00e9 na\u00efve \u00c4rger \u00d8re fa\u00e7ade \u0141\u00f3d\u017a",
    "the weaver weaves the woven weaving of weavers' weavings",
]
TEXTS = LEARNED + [
    "",
    " ",
    "   \n\n  \t x ",
    "cafe\u0301 A\u030angstrom \u212b \ufb01ne \u00bd \u2167 \u2460 \uff21\uff22",
    "\u4e2d\u6587\u5b57 \u65e5\u672c\u8a9e\u30c6\u30b9\u30c8 \ud55c\uad6d\uc5b4",
    "\U0001f600 \U0001f468\u200d\U0001f469\u200d\U0001f467 e\u0301\u0327",
    "<s>the weft</s> <s>",
    "the <ent> weft<ent>, a <word> swords <word>s <word>",
    "ABC abc <ABC> warp,warp weft.weft (the) [loom] {x} $5 +1 ^2 `q` |p| ~t",
    "1 12 123 1234 12345 1234567 1234abc \u0661\u0662\u0663\u0664",
    "don't DON'T we\u2019re 'tis I'm",
    "\u0130stanbul \u1e9e \u03a3\u03af\u03c3\u03c5\u03c6\u03bf\u03c2",
    "literal \u2581 mark\u2581s <0x41> ##ing ing## a</w>b",
    "\u3000wide\u00a0hard\u2003em\u200bzero\ufeffbom",
    "x" * 40 + " " + "weaving" * 12,
]


def trained(model, trainer, norm=None, pre=None, decoder=None, post=None):
    tokenizer = Tokenizer(model)
    if norm:
        tokenizer.normalizer = norm
    if pre:
        tokenizer.pre_tokenizer = pre
    tokenizer.train_from_iterator(LEARNED, trainer)
    if decoder:
        tokenizer.decoder = decoder
    if post:
        tokenizer.post_processor = post
    return tokenizer


def byte_level(pre, norm=None, added=(), size=320, **options):
    made = trained(
        models.BPE(**options),
        trainers.BpeTrainer(
            vocab_size=size,
            special_tokens=SPECIAL,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        ),
        norm,
        pre,
        decoders.ByteLevel(),
        processors.TemplateProcessing(
            single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
        ),
    )
    made.add_tokens(list(added))
    return made


def byte_fallback(norm, decoder, pre=None):
    fallback = [f"<0x{i:02X}>" for i in range(256)]
    made = trained(
        models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True),
        trainers.BpeTrainer(vocab_size=360, limit_alphabet=30, special_tokens=SPECIAL + fallback),
        norm,
        pre,
        decoder,
    )
    tree = json.loads(made.to_str())
    tree["added_tokens"] = [t for t in tree["added_tokens"] if not t["content"].startswith("<0x")]
    return Tokenizer.from_str(json.dumps(tree))


def unigram(norm, pre, decoder, added=()):
    trainer = trainers.UnigramTrainer(vocab_size=140, special_tokens=SPECIAL, unk_token="<unk>")
    made = trained(models.Unigram(), trainer, norm, pre, decoder)
    made.add_tokens(list(added))
    return made


def words(model, trainer, norm, pre, decoder=None, post=None):
    return trained(model, trainer, norm, pre, decoder, post)


def made_by_tokenizers():
    n, p, d = normalizers, pre_tokenizers, decoders
    letters = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    bert_post = processors.BertProcessing(("</s>", 2), ("<s>", 1))
    mask = [
        AddedToken("<ent>", lstrip=True, rstrip=True, normalized=False),
        AddedToken("<word>", single_word=True, normalized=False),
        AddedToken("ABC", normalized=True),
    ]
    yield "gpt2", byte_level(p.ByteLevel(add_prefix_space=True))
    yield (
        "split",
        byte_level(
            p.Sequence(
                [
                    p.Split(Regex(r"\d{1,3}(?=(?:\d{3})*\b)"), "isolated"),
                    p.Split(Regex(letters + r"|\s+$|\w+|\W"), "merged_with_previous"),
                    p.ByteLevel(add_prefix_space=False, use_regex=False),
                ]
            ),
            n.NFC(),
            mask,
            ignore_merges=True,
        ),
    )
    yield (
        "groups",
        byte_level(
            p.Sequence(
                [
                    p.Split(Regex(r"(?=(\d{3})+(?!\d))"), "isolated"),
                    p.Split(Regex(r" ?[a-z]+|\s+"), "merged_with_next"),
                    p.Split(Regex(r"[aeiou]"), "contiguous"),
                    p.Split("z", "removed"),
                    p.ByteLevel(add_prefix_space=False, use_regex=False),
                ]
            ),
            n.NFKD(),
        ),
    )
    yield (
        "inverted",
        byte_level(
            p.Sequence(
                [
                    p.Split(Regex(r"\p{L}+|\p{N}|[^\p{L}\p{N}]+"), "removed", invert=True),
                    p.ByteLevel(add_prefix_space=False, use_regex=False),
                ]
            )
        ),
    )
    yield (
        "llama",
        byte_fallback(
            n.Sequence([n.Prepend(SPACE), n.Replace(" ", SPACE)]),
            d.Sequence(
                [d.Replace(SPACE, " "), d.ByteFallback(), d.Fuse(), d.Strip(" ", 1, 0)]
            ),
        ),
    )
    yield (
        "gemma",
        byte_fallback(
            n.Replace(" ", SPACE),
            d.Sequence([d.Replace(SPACE, " "), d.ByteFallback(), d.Fuse()]),
            p.Split(" ", "merged_with_previous"),
        ),
    )
    yield (
        "bert",
        words(
            models.WordPiece(unk_token="<unk>"),
            trainers.WordPieceTrainer(vocab_size=160, special_tokens=SPECIAL),
            n.BertNormalizer(),
            p.BertPreTokenizer(),
            d.WordPiece(),
            bert_post,
        ),
    )
    yield (
        "bert_cased",
        words(
            models.WordPiece(unk_token="<unk>", max_input_chars_per_word=12),
            trainers.WordPieceTrainer(vocab_size=160, special_tokens=SPECIAL),
            n.BertNormalizer(lowercase=False),
            p.BertPreTokenizer(),
            d.WordPiece(cleanup=False),
        ),
    )
    yield (
        "whole_words",
        words(
            models.WordLevel(unk_token="<unk>"),
            trainers.WordLevelTrainer(vocab_size=80, special_tokens=SPECIAL),
            n.Sequence([n.NFKC(), n.Lowercase(), n.Strip()]),
            p.Whitespace(),
        ),
    )
    yield (
        "digits",
        words(
            models.WordLevel(unk_token="<unk>"),
            trainers.WordLevelTrainer(vocab_size=80, special_tokens=SPECIAL),
            n.Sequence([n.NFD(), n.StripAccents(), n.Replace(Regex(r"\s+"), " ")]),
            p.Sequence(
                [
                    p.WhitespaceSplit(),
                    p.Punctuation("contiguous"),
                    p.Digits(True),
                    p.CharDelimiterSplit("x"),
                ]
            ),
        ),
    )
    yield (
        "suffix",
        words(
            models.BPE(unk_token="<unk>", fuse_unk=True, end_of_word_suffix="</w>"),
            trainers.BpeTrainer(
                vocab_size=160, special_tokens=SPECIAL, end_of_word_suffix="</w>"
            ),
            n.Sequence([n.NFD(), n.Lowercase(), n.StripAccents()]),
            p.BertPreTokenizer(),
            d.BPEDecoder(suffix="</w>"),
        ),
    )
    yield (
        "prefix",
        words(
            models.BPE(unk_token="<unk>", continuing_subword_prefix="##"),
            trainers.BpeTrainer(
                vocab_size=160, special_tokens=SPECIAL, continuing_subword_prefix="##"
            ),
            n.Lowercase(),
            p.Split(" ", "removed"),
            d.WordPiece(cleanup=False),
        ),
    )
    yield "unigram", unigram(n.NFKC(), p.Metaspace(), d.Metaspace())
    yield (
        "unigram_first",
        unigram(
            n.NFC(),
            p.Metaspace(prepend_scheme="first"),
            d.Metaspace(prepend_scheme="first"),
            mask,
        ),
    )
    yield (
        "unigram_never",
        unigram(
            n.Lowercase(),
            p.Metaspace(prepend_scheme="never", split=False),
            d.Metaspace(prepend_scheme="never"),
        ),
    )


def cases_of(tokenizer):
    as_text = Tokenizer.from_str(tokenizer.to_str())
    as_text.encode_special_tokens = True
    draw = random.Random(5)
    count = tokenizer.get_vocab_size()
    for i, text in enumerate(TEXTS):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        plain = as_text.encode(text, add_special_tokens=False).ids
        # The library's models may make a control token of a text that spells its name; ours never
        # do, so where that happened nothing is compared.
        controls = {tokenizer.token_to_id(name) for name in SPECIAL[1:]}
        yield {
            "id": f"text-{i}",
            "text": text,
            "ids": ids,
            "ids_special": tokenizer.encode(text).ids,
            "ids_specials_as_text": None if controls & set(plain) else plain,
            "decoded": tokenizer.decode(ids, skip_special_tokens=False),
            "decoded_skip": tokenizer.decode(ids),
        }
    for i in range(20):
        ids = [draw.randrange(count) for _ in range(12)]
        yield {
            "id": f"ids-{i}",
            "ids": ids,
            "decoded": tokenizer.decode(ids, skip_special_tokens=False),
            "decoded_skip": tokenizer.decode(ids),
        }


def made_by_sentencepiece(folder):
    (folder / "texts").write_text("\n".join(LEARNED))
    rules = "FB01\t66 69\n212B\t41\n20 20\t20\nBD\t31 2F 32\n"
    (folder / "rules").write_text(rules)
    plain = {"normalization_rule_name": "identity"}
    mapped = {"normalization_rule_tsv": str(folder / "rules")}
    marked = {"user_defined_symbols": ["<ent>", "12", SPACE + SPACE]}
    for name, options in {
        "bpe": {"model_type": "bpe", "vocab_size": 380, "byte_fallback": True} | plain | marked,
        "bpe_spaces": {"model_type": "bpe", "vocab_size": 380, "byte_fallback": True}
        | {"remove_extra_whitespaces": False}
        | mapped,
        "bpe_suffix": {"model_type": "bpe", "vocab_size": 120, "treat_whitespace_as_suffix": True}
        | plain,
        "bpe_bare": {"model_type": "bpe", "vocab_size": 120, "add_dummy_prefix": False} | plain,
        "unigram": {"model_type": "unigram", "vocab_size": 120} | mapped | marked,
        "unigram_bytes": {"model_type": "unigram", "vocab_size": 380, "byte_fallback": True}
        | plain,
    }.items():
        sentencepiece.SentencePieceTrainer.train(
            input=str(folder / "texts"),
            model_prefix=str(folder / name),
            hard_vocab_limit=False,
            minloglevel=2,
            **options,
        )
        yield name, (folder / f"{name}.model").read_bytes()


def sentencepiece_cases(model):
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    draw = random.Random(6)
    for i, text in enumerate(TEXTS):
        ids = processor.encode(text)
        yield {
            "id": f"text-{i}",
            "text": text,
            "ids": ids,
            "ids_special": [processor.bos_id(), *ids],
            "decoded": processor.decode(ids),
        }
    for i in range(20):
        ids = [draw.randrange(processor.get_piece_size()) for _ in range(12)]
        yield {"id": f"ids-{i}", "ids": ids, "decoded": processor.decode(ids)}


def main():
    if not sentencepiece:
        print("tokenizers and sentencepiece are not installed: tokenizers.json.xz stays as it is")
        return
    entries = [
        {"name": name, "tokenizer": json.loads(made.to_str()), "cases": list(cases_of(made))}
        for name, made in made_by_tokenizers()
    ]
    with tempfile.TemporaryDirectory() as folder:
        for name, model in made_by_sentencepiece(pathlib.Path(folder)):
            entries.append(
                {
                    "name": f"sentencepiece {name}",
                    "model": base64.b64encode(model).decode(),
                    "cases": list(sentencepiece_cases(model)),
                }
            )
    data = json.dumps(entries, separators=(",", ":")).encode()
    TARGET.write_bytes(lzma.compress(data, preset=9))
    print(f"{TARGET.name}: {len(entries)} tokenizers, {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()
