/* schema_number.c -- numbers as text: bounds and multiples by an automaton over the digits.
 *
 * A number is read from the left, digit by digit, beside its bounds, whose lengths are known:
 *
 *     bound 120    text 1 3 ...    the same length: greater, by the second digit
 *                  text 1 3        shorter: less, whatever the digits
 *
 * so a state is how many digits came, how they compare with the bounds' so far, and the remainder
 * by the divisor. All arithmetic is decimal and exact. The language is finite: a whole part has at
 * most 20 digits, and a fraction as many as a double can tell apart from the bounds (15 digits in
 * all), so that whoever parses the text as a double finds the bounds kept, "exclusive" too.
 *
 * Without bounds a number may also have an exponent; "-0" is allowed there only. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/text/schema_internal.h"

enum {
    DIGITS_MAX = 40,   /* of a bound, on either side of the point */
    WHOLE_DIGITS = 20, /* of a number that is not bounded on that side */
    DOUBLE_DIGITS = 15,
    DIVISOR_MAX = 1000000,
    DECIMALS_MAX = 9,
    RESTS_MAX = 4096, /* states told apart by a remainder and a length */
    BOUNDS_MAX = 2,
    MULTIPLES_MAX = 8,
};

struct decimal {
    bool negative;
    uint8_t whole[DIGITS_MAX]; /* without leading zeros, but "0" */
    uint8_t fraction[DIGITS_MAX];
    int whole_count;
    int fraction_count; /* without zeros at its end */
};

struct bound {
    struct decimal value;
    bool upper;
    bool exclusive;
};

struct range {
    struct bound bounds[BOUNDS_MAX];
    int bound_count;
    uint32_t multiple; /* 0: none */
    int scale;         /* the multiple is in units of 10^-scale */
    uint32_t divisor;  /* the multiple without the zeros at its end */
    uint32_t zeros;    /* how many those are */
    bool integer;
    int whole_max;
    int fraction_max;
};

/* ---- decimals ---- */

/* From a JSON number, the shortest that is the same double. false: too many digits. */
static bool decimal_read(const json_t *number, struct decimal *ret_decimal)
{
    char text[64], digits[64];
    int count = 0, exponent = 0, point = -1;
    const char *at = text;

    if (json_is_integer(number)) {
        snprintf(text, sizeof text, "%lld", (long long)json_integer_value(number));
    } else {
        double value = json_real_value(number);

        for (int i = DOUBLE_DIGITS; i <= 17; i++) {
            snprintf(text, sizeof text, "%.*e", i - 1, value);
            if (strtod(text, NULL) == value)
                break;
        }
    }
    *ret_decimal = (struct decimal){.negative = *at == '-'};
    for (at += *at == '-'; *at && *at != 'e'; at++) {
        if (*at == '.')
            point = count;
        else
            digits[count++] = (char)(*at - '0');
    }
    if (*at == 'e')
        exponent = (int)strtol(at + 1, NULL, 10);
    point = (point < 0 ? count : point) + exponent;
    while (count > 0 && count > point && digits[count - 1] == 0)
        count--;
    if (point > DIGITS_MAX || count - point > DIGITS_MAX)
        return false;
    for (int i = 0; i < point; i++) {
        uint8_t digit = i < count ? (uint8_t)digits[i] : 0;

        if (digit != 0 || ret_decimal->whole_count > 0)
            ret_decimal->whole[ret_decimal->whole_count++] = digit;
    }
    for (int i = point; i < count; i++)
        ret_decimal->fraction[ret_decimal->fraction_count++] = i < 0 ? 0 : (uint8_t)digits[i];
    if (ret_decimal->whole_count == 0)
        ret_decimal->whole_count = 1;
    return true;
}

static bool decimal_is_zero(const struct decimal *decimal)
{
    return decimal->whole_count == 1 && decimal->whole[0] == 0 && decimal->fraction_count == 0;
}

static int magnitude_compare(const struct decimal *a, const struct decimal *b)
{
    int order;

    if (a->whole_count != b->whole_count)
        return a->whole_count < b->whole_count ? -1 : 1;
    order = memcmp(a->whole, b->whole, (size_t)a->whole_count);
    return order != 0 ? order : memcmp(a->fraction, b->fraction, DIGITS_MAX);
}

static int decimal_compare(const struct decimal *a, const struct decimal *b)
{
    bool a_below = a->negative && !decimal_is_zero(a), b_below = b->negative && !decimal_is_zero(b);

    if (a_below != b_below)
        return a_below ? -1 : 1;
    return a_below ? magnitude_compare(b, a) : magnitude_compare(a, b);
}

/* ---- what a leaf asks ---- */

static int divisor_read(struct schema_compiler *compiler, const json_t *schema, const json_t *value,
                        struct range *range)
{
    struct decimal decimal;
    uint64_t divisor = 0;
    bool fits = decimal_read(value, &decimal);

    if (json_number_value(value) <= 0)
        return schema_refuse(compiler, E_INVALID, schema, "multipleOf", "must be above 0");
    if (json_number_value(value) < 1 && (!fits || decimal.fraction_count > DECIMALS_MAX))
        return schema_refuse(compiler, E_UNSUPPORTED, schema, "multipleOf",
                             "has more than %d decimals: smaller steps are not supported",
                             DECIMALS_MAX);
    if (fits && decimal.fraction_count <= DECIMALS_MAX && decimal.whole_count <= 9) {
        for (int i = 0; i < decimal.whole_count; i++)
            divisor = divisor * 10 + decimal.whole[i];
        for (int i = 0; i < decimal.fraction_count; i++)
            divisor = divisor * 10 + decimal.fraction[i];
    } else {
        divisor = DIVISOR_MAX + 1;
    }
    if (divisor > DIVISOR_MAX)
        return schema_refuse(compiler, E_UNSUPPORTED, schema, "multipleOf",
                             "is supported up to %d units of its last decimal", DIVISOR_MAX);
    if (range->multiple == 0) {
        range->multiple = (uint32_t)divisor;
        range->scale = decimal.fraction_count;
    } else if (range->scale == 0 && decimal.fraction_count == 0) { /* both hold: their lcm */
        uint64_t a = range->multiple, b = divisor;

        while (b != 0) {
            uint64_t rest = a % b;

            a = b;
            b = rest;
        }
        divisor = range->multiple / a * divisor;
        if (divisor > DIVISOR_MAX)
            return schema_refuse(compiler, E_UNSUPPORTED, schema, "multipleOf",
                                 "several of them together are too large");
        range->multiple = (uint32_t)divisor;
    } else if (range->multiple != divisor || range->scale != decimal.fraction_count) {
        return schema_refuse(compiler, E_UNSUPPORTED, schema, "multipleOf",
                             "several with decimals cannot be enforced together");
    }
    return 0;
}

static int bound_read(struct schema_compiler *compiler, const json_t *schema, const char *keyword,
                      bool upper, bool exclusive, struct range *range)
{
    const json_t *value = json_object_get(schema, keyword);
    struct bound bound = {.upper = upper, .exclusive = exclusive};
    int order;

    if (!value)
        return 0;
    if (!decimal_read(value, &bound.value))
        return schema_refuse(compiler, E_UNSUPPORTED, schema, keyword,
                             "is supported with at most %d digits on each side of the point",
                             DIGITS_MAX);
    for (int i = 0; i < range->bound_count; i++) {
        struct bound *other = &range->bounds[i];

        if (other->upper != upper)
            continue;
        order = decimal_compare(&bound.value, &other->value);
        if (order == 0)
            other->exclusive = other->exclusive || exclusive;
        else if ((order < 0) == upper)
            *other = bound;
        return 0;
    }
    range->bounds[range->bound_count++] = bound;
    return 0;
}

static int range_read(struct schema_compiler *compiler, const struct schema_leaf *leaf,
                      struct range *ret_range)
{
    static const struct {
        const char *name;
        bool upper;
        bool exclusive;
    } names[] = {{"minimum", false, false},
                 {"exclusiveMinimum", false, true},
                 {"maximum", true, false},
                 {"exclusiveMaximum", true, true}};
    int r = 0, near = 0;

    *ret_range = (struct range){.integer = !(leaf->types & TYPE_FRACTION)};
    for (uint32_t i = 0; i < leaf->set.count; i++) {
        const json_t *schema = leaf->set.schemas[i], *multiple;

        for (size_t n = 0; r == 0 && n < sizeof names / sizeof *names; n++)
            r = bound_read(compiler, schema, names[n].name, names[n].upper, names[n].exclusive,
                           ret_range);
        multiple = json_object_get(schema, "multipleOf");
        if (r == 0 && multiple)
            r = divisor_read(compiler, schema, multiple, ret_range);
        if (r < 0)
            return r;
    }
    ret_range->whole_max = WHOLE_DIGITS;
    for (int i = 0; i < ret_range->bound_count; i++) {
        const struct decimal *value = &ret_range->bounds[i].value;

        if (value->whole_count + 1 > ret_range->whole_max)
            ret_range->whole_max = value->whole_count + 1;
        near = value->whole_count > near ? value->whole_count : near;
        if (value->fraction_count > ret_range->fraction_max)
            ret_range->fraction_max = value->fraction_count;
    }
    /* A double has to tell multiples apart, so all digits count where there is a fraction. */
    if (ret_range->multiple != 0 && ret_range->scale > 0 && !ret_range->integer) {
        ret_range->whole_max = DOUBLE_DIGITS - ret_range->scale;
        if (ret_range->whole_max <= near)
            ret_range->whole_max = near + 1;
    }
    if (ret_range->multiple != 0)
        ret_range->fraction_max = ret_range->scale;
    else if (ret_range->fraction_max < DOUBLE_DIGITS - near)
        ret_range->fraction_max = DOUBLE_DIGITS - near;
    ret_range->divisor = ret_range->multiple;
    while (ret_range->divisor != 0 && ret_range->divisor % 10 == 0) {
        ret_range->divisor /= 10;
        ret_range->zeros++;
    }
    if (ret_range->fraction_max == 0)
        ret_range->integer = true; /* nothing is left for a fraction */
    return 0;
}

/* ---- the automaton ---- */

enum phase {
    PHASE_START,
    PHASE_SIGN,
    PHASE_ZERO, /* the whole part is "0" */
    PHASE_WHOLE,
    PHASE_POINT,
    PHASE_FRACTION,
};

enum { LESS = 0, SAME = 1, MORE = 2 };

/* A state's key, a word each: a struct would have holes. */
enum {
    KEY_PHASE,
    KEY_NEGATIVE,
    KEY_NONZERO,
    KEY_COUNT, /* digits of this side of the point */
    KEY_REST,  /* of the digits before the zeros below, by the divisor */
    KEY_ZEROS, /* at the end so far, as many as the multiple has at most */
    KEY_ORDER, /* one for each bound */
    KEY_WORDS = KEY_ORDER + BOUNDS_MAX,
};

static uint32_t digit_order(uint32_t order, uint32_t digit, uint32_t other)
{
    if (order != SAME || digit == other)
        return order;
    return digit < other ? LESS : MORE;
}

/* How the whole part compares, now that it has ended. */
static uint32_t whole_order(const struct decimal *bound, uint32_t order, uint32_t count)
{
    if (count != (uint32_t)bound->whole_count)
        return count < (uint32_t)bound->whole_count ? LESS : MORE;
    return order;
}

/* How the magnitude compares with the bound's if the text ends here. */
static uint32_t end_order(const struct decimal *bound, const uint32_t *key, int i)
{
    uint32_t order = key[KEY_ORDER + i], digits = 0;

    if (key[KEY_PHASE] < PHASE_POINT)
        order = whole_order(bound, order, key[KEY_COUNT]);
    else
        digits = key[KEY_COUNT];
    /* A fraction has no zeros at its end, so what is left of it is above 0. */
    if (order == SAME && digits < (uint32_t)bound->fraction_count)
        return LESS;
    return order;
}

static bool bound_kept(const struct bound *bound, const uint32_t *key, int i)
{
    bool zero = key[KEY_NONZERO] == 0, below = key[KEY_NEGATIVE] != 0;
    bool bound_below = bound->value.negative && !decimal_is_zero(&bound->value);
    uint32_t order;

    if (zero)
        order = bound_below ? MORE : decimal_is_zero(&bound->value) ? SAME : LESS;
    else if (below != bound_below)
        order = below ? LESS : MORE;
    else
        order = end_order(&bound->value, key, i);
    if (!zero && below && bound_below)
        order = MORE - order;
    if (order == SAME)
        return !bound->exclusive;
    return (order == LESS) == bound->upper;
}

/* One digit more behind the remainder and the zeros after it. */
static void rest_step(const struct range *range, uint32_t *key, uint32_t digit)
{
    uint64_t rest = key[KEY_REST];

    if (range->multiple == 0)
        return;
    if (digit == 0 && key[KEY_ZEROS] < range->zeros) {
        key[KEY_ZEROS]++;
        return;
    }
    for (uint32_t i = 0; digit != 0 && i < key[KEY_ZEROS]; i++)
        rest = rest * 10 % range->divisor;
    if (digit != 0)
        key[KEY_ZEROS] = 0;
    key[KEY_REST] = (uint32_t)((rest * 10 + digit) % range->divisor);
}

static bool range_accepts(const struct range *range, const uint32_t *key)
{
    uint32_t phase = key[KEY_PHASE], end[KEY_WORDS];

    if (phase != PHASE_ZERO && phase != PHASE_WHOLE && phase != PHASE_FRACTION)
        return false;
    if (key[KEY_NEGATIVE] && !key[KEY_NONZERO])
        return false;
    for (int i = 0; i < range->bound_count; i++)
        if (!bound_kept(&range->bounds[i], key, i))
            return false;
    if (range->multiple == 0 || !key[KEY_NONZERO])
        return true;
    memcpy(end, key, sizeof end);
    for (int i = phase == PHASE_FRACTION ? (int)key[KEY_COUNT] : 0; i < range->scale; i++)
        rest_step(range, end, 0);
    return end[KEY_ZEROS] == range->zeros && end[KEY_REST] == 0;
}

/* The key after one more digit; false: no digit may come. */
static bool step_digit(const struct range *range, const uint32_t *key, uint32_t digit,
                       uint32_t *next)
{
    bool fraction = key[KEY_PHASE] >= PHASE_POINT;
    uint32_t count = key[KEY_COUNT];

    memcpy(next, key, KEY_WORDS * sizeof *next);
    if (key[KEY_PHASE] == PHASE_ZERO)
        return false;
    if (count == (uint32_t)(fraction ? range->fraction_max : range->whole_max))
        return false;
    if (fraction)
        next[KEY_PHASE] = PHASE_FRACTION;
    else
        next[KEY_PHASE] = count == 0 && digit == 0 ? PHASE_ZERO : PHASE_WHOLE;
    next[KEY_COUNT] = count + 1;
    next[KEY_NONZERO] |= digit != 0;
    rest_step(range, next, digit);
    for (int i = 0; i < range->bound_count; i++) {
        const struct decimal *bound = &range->bounds[i].value;
        uint32_t other = 0;

        if (fraction)
            other = bound->fraction[count];
        else if (count >= (uint32_t)bound->whole_count)
            continue; /* it is longer: whole_order() will say so */
        else
            other = bound->whole[count];
        next[KEY_ORDER + i] = digit_order(key[KEY_ORDER + i], digit, other);
    }
    return true;
}

static void step_point(const struct range *range, const uint32_t *key, uint32_t *next)
{
    memcpy(next, key, KEY_WORDS * sizeof *next);
    next[KEY_PHASE] = PHASE_POINT;
    next[KEY_COUNT] = 0;
    for (int i = 0; i < range->bound_count; i++)
        next[KEY_ORDER + i] =
            whole_order(&range->bounds[i].value, key[KEY_ORDER + i], key[KEY_COUNT]);
}

static void range_state(const struct range *range, struct regular_maker *maker, const uint32_t *key)
{
    uint32_t next[KEY_WORDS], phase = key[KEY_PHASE];

    regular_maker_begin(maker, range_accepts(range, key));
    if (phase == PHASE_START) {
        memcpy(next, key, sizeof next);
        next[KEY_PHASE] = PHASE_SIGN;
        next[KEY_NEGATIVE] = 1;
        regular_maker_edge(maker, '-', '-', regular_maker_state(maker, next, KEY_WORDS));
    }
    if ((phase == PHASE_ZERO || phase == PHASE_WHOLE) && !range->integer) {
        step_point(range, key, next);
        regular_maker_edge(maker, '.', '.', regular_maker_state(maker, next, KEY_WORDS));
    }
    for (uint32_t digit = 0; digit < 10; digit++)
        if (step_digit(range, key, digit, next))
            regular_maker_edge(maker, '0' + digit, '0' + digit,
                               regular_maker_state(maker, next, KEY_WORDS));
}

static int range_set(struct schema_compiler *compiler, const struct range *range,
                     const struct regular **ret_set)
{
    uint32_t key[KEY_WORDS] = {PHASE_START}, words;
    struct regular_maker *maker;
    int r = regular_maker_open(&compiler->regular, &maker);

    if (r < 0)
        return r;
    for (int i = 0; i < BOUNDS_MAX; i++)
        key[KEY_ORDER + i] = SAME;
    regular_maker_state(maker, key, KEY_WORDS);
    for (uint32_t i = 0; i < regular_maker_count(maker); i++) {
        /* Copied: a new state may move the keys' table, though not the words. */
        memcpy(key, regular_maker_key(maker, i, &words), sizeof key);
        range_state(range, maker, key);
    }
    return regular_maker_finish(maker, ret_set);
}

/* ---- nodes ---- */

static int32_t digits(struct schema_compiler *compiler, char first, char last, int32_t low,
                      int32_t high)
{
    struct grammar_range range = {(unsigned char)first, (unsigned char)last};
    int32_t node = grammar_class(compiler->grammar, &range, 1, false);

    return low == 1 && high == 1 ? node : grammar_repeat(compiler->grammar, node, low, high);
}

/* '-'? ( '0' | [1-9] [0-9]{0,19} ) */
static int32_t plain_integer(struct schema_compiler *compiler, bool sign)
{
    int32_t ways[2], node;

    ways[0] = schema_literal(compiler, "0");
    ways[1] = schema_pair(compiler, digits(compiler, '1', '9', 1, 1),
                          digits(compiler, '0', '9', 0, WHOLE_DIGITS - 1));
    node = grammar_choice(compiler->grammar, ways, 2);
    if (sign)
        node =
            schema_pair(compiler, schema_optional(compiler, schema_literal(compiler, "-")), node);
    return node;
}

/* [eE] [+-]? and up to 279, so that 20 digits before it stay within a double. */
static int32_t exponent(struct schema_compiler *compiler)
{
    static const struct grammar_range letters[] = {{'E', 'E'}, {'e', 'e'}};
    static const struct grammar_range signs[] = {{'+', '+'}, {'-', '-'}};
    int32_t ways[3], nodes[3];

    nodes[0] = digits(compiler, '1', '1', 1, 1);
    nodes[1] = digits(compiler, '0', '9', 2, 2);
    ways[0] = grammar_sequence(compiler->grammar, nodes, 2);
    nodes[0] = digits(compiler, '2', '2', 1, 1);
    nodes[1] = digits(compiler, '0', '7', 1, 1);
    nodes[2] = digits(compiler, '0', '9', 1, 1);
    ways[1] = grammar_sequence(compiler->grammar, nodes, 3);
    ways[2] = digits(compiler, '0', '9', 1, 2);
    nodes[0] = grammar_class(compiler->grammar, letters, 2, false);
    nodes[1] = schema_optional(compiler, grammar_class(compiler->grammar, signs, 2, false));
    nodes[2] = grammar_choice(compiler->grammar, ways, 3);
    return grammar_sequence(compiler->grammar, nodes, 3);
}

static int32_t plain_number(struct schema_compiler *compiler, bool sign)
{
    int32_t nodes[3];

    nodes[0] = plain_integer(compiler, sign);
    nodes[1] = schema_optional(compiler, schema_pair(compiler, schema_literal(compiler, "."),
                                                     digits(compiler, '0', '9', 1, WHOLE_DIGITS)));
    nodes[2] = schema_optional(compiler, exponent(compiler));
    return grammar_sequence(compiler->grammar, nodes, 3);
}

static int32_t shared_rule(struct schema_compiler *compiler, const char *name, int32_t node)
{
    int32_t rule = grammar_rule(compiler->grammar, name);
    int r = rule < 0 ? rule : grammar_define(compiler->grammar, rule, node);

    return r < 0 ? r : grammar_reference(compiler->grammar, rule);
}

/* A remainder for each length is too much for a large multiple: then fewer digits are allowed, some
 * above the bounds' and the multiple's own. */
static void limit_digits(struct range *range)
{
    uint32_t rests = range->divisor * (range->zeros + 1);
    int most = 2;

    if (range->multiple == 0 || rests * (uint32_t)range->whole_max <= RESTS_MAX)
        return;
    for (uint32_t left = range->multiple; left > 0; left /= 10)
        most++;
    for (int i = 0; i < range->bound_count; i++)
        if (range->bounds[i].value.whole_count + 1 > most)
            most = range->bounds[i].value.whole_count + 1;
    if (most < (int)(RESTS_MAX / rests))
        most = (int)(RESTS_MAX / rests);
    if (most < range->whole_max)
        range->whole_max = most;
}

int32_t schema_number(struct schema_compiler *compiler, const struct schema_leaf *leaf)
{
    const struct regular *set;
    struct range range;
    int r = range_read(compiler, leaf, &range);

    if (r < 0)
        return r;
    limit_digits(&range);
    if (range.bound_count == 0 && range.multiple == 0) {
        int32_t *node = range.integer ? &compiler->integer : &compiler->number;

        if (*node < 0)
            *node = range.integer ? shared_rule(compiler, "integer", plain_integer(compiler, true))
                                  : shared_rule(compiler, "number", plain_number(compiler, true));
        return *node;
    }
    /* "0 or more" is the one range that allows any exponent. */
    if (range.bound_count == 1 && range.multiple == 0 && !range.integer && !range.bounds[0].upper &&
        !range.bounds[0].exclusive && decimal_is_zero(&range.bounds[0].value))
        return plain_number(compiler, false);
    r = range_set(compiler, &range, &set);
    if (r < 0)
        return schema_exhausted(compiler, r,
                                range.multiple != 0 ? "multipleOf" : "the range of a number");
    return schema_text_set(compiler, set, SPELLING_TEXT);
}

int schema_number_fits(struct schema_compiler *compiler, const struct schema_leaf *leaf,
                       const json_t *number)
{
    struct decimal value;
    struct range range;
    uint64_t rest = 0;
    int r = range_read(compiler, leaf, &range);

    if (r < 0)
        return r;
    if (range.bound_count == 0 && range.multiple == 0)
        return 1;
    if (!decimal_read(number, &value))
        return fault_set(compiler->fault, E_UNSUPPORTED,
                         "a number among the schema's enum or const has too many digits");
    for (int i = 0; i < range.bound_count; i++) {
        const struct bound *bound = &range.bounds[i];
        int order = decimal_compare(&value, &bound->value);

        if (order == 0 ? bound->exclusive : (order < 0) != bound->upper)
            return 0;
    }
    if (range.multiple == 0)
        return 1;
    if (value.fraction_count > range.scale)
        return 0;
    for (int i = 0; i < value.whole_count; i++)
        rest = (rest * 10 + value.whole[i]) % range.multiple;
    for (int i = 0; i < range.scale; i++)
        rest = (rest * 10 + value.fraction[i]) % range.multiple;
    return rest == 0;
}
