/* jinja_number.c -- see jinja_number.h.
 *
 * Large integers are sign and magnitude in limbs of 32 bits, by the methods of school: a template
 * has a long id to print once in a while, nothing more. */
#include "engine/text/jinja_number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/text/jinja_text.h"

enum { DECIMAL_CHUNK = 1000000000, DECIMAL_CHUNK_DIGITS = 9, FLOAT_READ_MAX = 512 };

/* --- large integers --------------------------------------------------------------------------- */

/* A bool's, int's or big's magnitude and sign, for the operations on large integers. */
struct wide {
    bool negative;
    uint32_t count;
    uint32_t limbs[2 * BIG_LIMBS_MAX + 2];
};

static void wide_set(struct wide *wide, struct value value)
{
    uint64_t magnitude;

    if (value.kind == VALUE_BIG) {
        wide->negative = value.big->negative;
        wide->count = value.big->count;
        memcpy(wide->limbs, value.big->limbs, wide->count * sizeof *wide->limbs);
        return;
    }
    if (value.kind == VALUE_BOOL)
        value = value_int(value.truth);
    wide->negative = value.integer < 0;
    magnitude = wide->negative ? 0 - (uint64_t)value.integer : (uint64_t)value.integer;
    wide->limbs[0] = (uint32_t)magnitude;
    wide->limbs[1] = (uint32_t)(magnitude >> 32);
    wide->count = wide->limbs[1] ? 2 : wide->limbs[0] ? 1 : 0;
}

static int wide_value(struct run *run, const struct wide *wide, struct value *ret_value)
{
    struct big *big;

    if (wide->count <= 2) {
        uint64_t magnitude = 0;

        for (uint32_t i = wide->count; i-- > 0;)
            magnitude = magnitude << 32 | wide->limbs[i];
        if (magnitude <= (uint64_t)INT64_MAX + wide->negative) {
            *ret_value = value_int(wide->negative ? (int64_t)(0 - magnitude) : (int64_t)magnitude);
            return 0;
        }
    }
    if (wide->count > BIG_LIMBS_MAX)
        return run_fault(run, E_TOO_LARGE, "an integer has more than %d bits", BIG_LIMBS_MAX * 32);
    big = run_take(run, 1, sizeof *big + wide->count * sizeof *big->limbs);
    if (!big)
        return E_MEMORY;
    big->negative = wide->negative;
    big->count = wide->count;
    memcpy(big->limbs, wide->limbs, wide->count * sizeof *big->limbs);
    *ret_value = (struct value){.kind = VALUE_BIG, .big = big};
    return 0;
}

static void wide_trim(struct wide *wide)
{
    while (wide->count > 0 && wide->limbs[wide->count - 1] == 0)
        wide->count--;
}

static int wide_compare(const struct wide *left, const struct wide *right)
{
    if (left->count != right->count)
        return left->count < right->count ? -1 : 1;
    for (uint32_t i = left->count; i-- > 0;) {
        if (left->limbs[i] != right->limbs[i])
            return left->limbs[i] < right->limbs[i] ? -1 : 1;
    }
    return 0;
}

/* |left| + |right|; the result may be one of them. */
static void wide_add(const struct wide *left, const struct wide *right, struct wide *ret_sum)
{
    uint32_t count = left->count > right->count ? left->count : right->count;
    uint64_t carry = 0;

    for (uint32_t i = 0; i < count; i++) {
        carry += (uint64_t)(i < left->count ? left->limbs[i] : 0) +
                 (i < right->count ? right->limbs[i] : 0);
        ret_sum->limbs[i] = (uint32_t)carry;
        carry >>= 32;
    }
    ret_sum->count = count;
    if (carry)
        ret_sum->limbs[ret_sum->count++] = (uint32_t)carry;
}

/* |left| - |right|, where that is not negative. */
static void wide_subtract(const struct wide *left, const struct wide *right,
                          struct wide *ret_difference)
{
    int64_t borrow = 0;
    uint32_t count = left->count;

    for (uint32_t i = 0; i < count; i++) {
        borrow += (int64_t)left->limbs[i] - (i < right->count ? right->limbs[i] : 0);
        ret_difference->limbs[i] = (uint32_t)borrow;
        borrow = borrow < 0 ? -1 : 0;
    }
    ret_difference->count = count;
    wide_trim(ret_difference);
}

static void wide_add_signed(const struct wide *left, const struct wide *right, bool flip,
                            struct wide *ret_sum)
{
    bool right_negative = right->negative != flip;

    if (left->negative == right_negative) {
        ret_sum->negative = left->negative;
        wide_add(left, right, ret_sum);
    } else if (wide_compare(left, right) >= 0) {
        ret_sum->negative = left->negative;
        wide_subtract(left, right, ret_sum);
    } else {
        ret_sum->negative = right_negative;
        wide_subtract(right, left, ret_sum);
    }
}

static void wide_multiply(const struct wide *left, const struct wide *right, struct wide *product)
{
    memset(product->limbs, 0, (left->count + right->count) * sizeof *product->limbs);
    for (uint32_t i = 0; i < left->count; i++) {
        uint64_t carry = 0;

        for (uint32_t j = 0; j < right->count; j++) {
            carry += (uint64_t)left->limbs[i] * right->limbs[j] + product->limbs[i + j];
            product->limbs[i + j] = (uint32_t)carry;
            carry >>= 32;
        }
        product->limbs[i + right->count] = (uint32_t)carry;
    }
    product->count = left->count + right->count;
    product->negative = left->negative != right->negative;
    wide_trim(product);
}

/* In place by a small number; returns the remainder. */
static uint32_t wide_divide_small(struct wide *wide, uint32_t by)
{
    uint64_t rest = 0;

    for (uint32_t i = wide->count; i-- > 0;) {
        rest = rest << 32 | wide->limbs[i];
        wide->limbs[i] = (uint32_t)(rest / by);
        rest %= by;
    }
    wide_trim(wide);
    return (uint32_t)rest;
}

/* Bit by bit: quotient and remainder of the magnitudes. */
static void wide_divide(const struct wide *left, const struct wide *right, struct wide *quotient,
                        struct wide *rest)
{
    *quotient = (struct wide){.count = left->count};
    *rest = (struct wide){.count = 0};
    for (uint32_t i = left->count * 32; i-- > 0;) {
        uint32_t carry = left->limbs[i / 32] >> (i % 32) & 1;

        for (uint32_t j = 0; j < rest->count; j++) {
            uint32_t next = rest->limbs[j] >> 31;

            rest->limbs[j] = rest->limbs[j] << 1 | carry;
            carry = next;
        }
        if (carry)
            rest->limbs[rest->count++] = carry;
        if (wide_compare(rest, right) >= 0) {
            wide_subtract(rest, right, rest);
            quotient->limbs[i / 32] |= 1u << (i % 32);
        }
    }
    wide_trim(quotient);
}

/* Python's: rounds to minus infinity, and the remainder has the divisor's sign. */
static void wide_divide_floor(const struct wide *left, const struct wide *right,
                              struct wide *quotient, struct wide *rest)
{
    static const struct wide one = {.count = 1, .limbs = {1}};

    wide_divide(left, right, quotient, rest);
    quotient->negative = left->negative != right->negative;
    if (quotient->negative && rest->count > 0) {
        wide_add(quotient, &one, quotient);
        wide_subtract(right, rest, rest);
    }
    rest->negative = right->negative;
}

static double wide_float(const struct wide *wide)
{
    double real = 0;

    for (uint32_t i = wide->count; i-- > 0;)
        real = real * 0x1p32 + wide->limbs[i];
    return wide->negative ? -real : real;
}

static void wide_print(struct wide *wide, struct buf *out)
{
    uint32_t chunks[BIG_LIMBS_MAX * 2];
    uint32_t count = 0;

    if (wide->negative)
        buf_byte(out, '-');
    while (wide->count > 0)
        chunks[count++] = wide_divide_small(wide, DECIMAL_CHUNK);
    if (count == 0)
        buf_byte(out, '0');
    for (uint32_t i = count; i-- > 0;)
        buf_format(out, i + 1 == count ? "%u" : "%09u", chunks[i]);
}

/* --- reading and printing --------------------------------------------------------------------- */

int number_read(struct run *run, const char *digits, size_t count, unsigned base, bool negative,
                struct value *ret_value)
{
    struct wide wide = {.count = 0};
    uint64_t small = 0;
    size_t at = 0;

    for (; at < count && small < ((uint64_t)1 << 58); at++) {
        char c = digits[at];

        small = small * base + (uint64_t)(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
    }
    if (at == count && small <= INT64_MAX) {
        *ret_value = value_int(negative ? -(int64_t)small : (int64_t)small);
        return 0;
    }
    if (run_step(run, count * 16) < 0)
        return E_TOO_LARGE;
    for (at = 0; at < count; at++) {
        char c = digits[at];
        uint64_t carry = (uint64_t)(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);

        for (uint32_t i = 0; i < wide.count; i++) {
            carry += (uint64_t)wide.limbs[i] * base;
            wide.limbs[i] = (uint32_t)carry;
            carry >>= 32;
        }
        if (carry)
            wide.limbs[wide.count++] = (uint32_t)carry;
        if (wide.count > BIG_LIMBS_MAX)
            return run_fault(run, E_TOO_LARGE, "an integer has more than %d bits",
                             BIG_LIMBS_MAX * 32);
    }
    wide.negative = negative;
    return wide_value(run, &wide, ret_value);
}

void number_print(struct value value, struct buf *out)
{
    char text[FLOAT_TEXT_ROOM];
    struct wide wide;

    switch (value.kind) {
    case VALUE_BOOL:
        buf_text(out, value.truth ? "True" : "False");
        break;
    case VALUE_INT:
        if (value.integer < 0)
            buf_byte(out, '-');
        buf_u64(out, value.integer < 0 ? 0 - (uint64_t)value.integer : (uint64_t)value.integer);
        break;
    case VALUE_BIG:
        wide_set(&wide, value);
        wide_print(&wide, out);
        break;
    default:
        float_print(value.real, text);
        buf_text(out, text);
        break;
    }
}

void float_print(double real, char ret_text[static FLOAT_TEXT_ROOM])
{
    char digits[40];
    /* Fifteen digits of a double are exact, so what zeros there are at their end can go; those next
     * to zero have fewer. */
    int exponent, precision = fabs(real) < 0x1p-1020 ? 0 : 14;
    char *end;

    if (!isfinite(real)) {
        (void)snprintf(ret_text, FLOAT_TEXT_ROOM, "%s",
                       isnan(real) ? "nan"
                       : real < 0  ? "-inf"
                                   : "inf");
        return;
    }
    do
        (void)snprintf(digits, sizeof digits, "%.*e", precision, real);
    while (strtod(digits, NULL) != real && ++precision < 17);
    end = strchr(digits, 'e');
    exponent = (int)strtol(end + 1, NULL, 10);
    while (precision > 0 && end[-1] == '0') {
        end--;
        precision--;
    }
    if (exponent < -4 || exponent >= 16) {
        if (precision == 0)
            end = digits + (*digits == '-') + 1;
        (void)snprintf(ret_text, FLOAT_TEXT_ROOM, "%.*se%c%02d", (int)(end - digits), digits,
                       exponent < 0 ? '-' : '+', abs(exponent));
        return;
    }
    precision = precision - exponent;
    (void)snprintf(ret_text, FLOAT_TEXT_ROOM, "%.*f", precision > 1 ? precision : 1, real);
}

bool float_read(const struct text *text, double *ret_real)
{
    static const char *const words[] = {"inf", "infinity", "nan"};
    char copy[FLOAT_READ_MAX];
    size_t start = 0, end = text->bytes, at = 0;
    char *stop;

    while (start < end && char_is_space((unsigned char)text->data[start]))
        start++;
    while (end > start && char_is_space((unsigned char)text->data[end - 1]))
        end--;
    if (end == start || end - start >= sizeof copy)
        return false;
    for (size_t i = start; i < end; i++) {
        char c = text->data[i];
        bool between = i > start && i + 1 < end && (unsigned)(text->data[i - 1] - '0') < 10 &&
                       (unsigned)(text->data[i + 1] - '0') < 10;

        if (c == '_' && between)
            continue;
        copy[at++] = c;
        if (c == 0 || c == '_' || c == 'x' || c == 'X' || c == 'p' || c == 'P' || c == '(')
            return false; /* strtod's own forms, not Python's */
    }
    copy[at] = 0;
    *ret_real = strtod(copy, &stop);
    if (stop == copy || *stop)
        return false;
    if (isfinite(*ret_real) || strpbrk(copy, "0123456789"))
        return true;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcasecmp(copy + (*copy == '-' || *copy == '+'), words[i]) == 0)
            return true;
    }
    return false;
}

int integer_read(struct run *run, const struct text *text, unsigned base, struct value *ret_value)
{
    char copy[BIG_LIMBS_MAX * 10];
    size_t start = 0, end = text->bytes, count = 0;
    bool negative = false;
    unsigned prefix = 0;
    int r;

    while (start < end && char_is_space((unsigned char)text->data[start]))
        start++;
    while (end > start && char_is_space((unsigned char)text->data[end - 1]))
        end--;
    if (start < end && (text->data[start] == '-' || text->data[start] == '+'))
        negative = text->data[start++] == '-';
    if (end - start > 1 && text->data[start] == '0') {
        char letter = text->data[start + 1] | 32;

        prefix = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    }
    if (prefix && (prefix == base || base == 0)) {
        base = prefix;
        start += 2;
    }
    if (base == 0)
        base = 10;
    for (size_t i = start; i < end; i++) {
        char c = text->data[i];
        int digit = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' ? (c | 32) - 'a' + 10 : 99;

        if (c == '_' && i > start && i + 1 < end && text->data[i - 1] != '_')
            continue;
        if (digit < 0 || digit >= (int)base || count == sizeof copy)
            return 0;
        copy[count++] = c;
    }
    if (count == 0 || base > 16)
        return 0;
    r = number_read(run, copy, count, base, negative, ret_value);
    return r < 0 ? r : 1;
}

/* --- arithmetic ------------------------------------------------------------------------------- */

double number_float(struct value value)
{
    struct wide wide;

    switch (value.kind) {
    case VALUE_BOOL:
        return value.truth;
    case VALUE_INT:
        return (double)value.integer;
    case VALUE_BIG:
        wide_set(&wide, value);
        return wide_float(&wide);
    default:
        return value.real;
    }
}

int number_truncate(struct run *run, double real, struct value *ret_value)
{
    char digits[FLOAT_TEXT_ROOM];
    int count;

    if (!isfinite(real))
        return run_wrong(run, "cannot convert float %s to integer",
                         isnan(real) ? "NaN" : "infinity");
    if (fabs(real) < 0x1p62) {
        *ret_value = value_int((int64_t)real);
        return 0;
    }
    count = snprintf(digits, sizeof digits, "%.0f", fabs(real));
    return number_read(run, digits, (size_t)count, 10, real < 0, ret_value);
}

int number_compare(struct value left, struct value right)
{
    struct wide a, b;

    if (left.kind == VALUE_FLOAT || right.kind == VALUE_FLOAT) {
        double x = number_float(left), y = number_float(right);

        return isnan(x) || isnan(y) ? 2 : x < y ? -1 : x > y;
    }
    if (left.kind == VALUE_BOOL)
        left = value_int(left.truth);
    if (right.kind == VALUE_BOOL)
        right = value_int(right.truth);
    if (left.kind == VALUE_INT && right.kind == VALUE_INT)
        return left.integer < right.integer ? -1 : left.integer > right.integer;
    wide_set(&a, left);
    wide_set(&b, right);
    if (a.negative != b.negative)
        return a.negative ? -1 : 1;
    return a.negative ? wide_compare(&b, &a) : wide_compare(&a, &b);
}

int number_negate(struct run *run, struct value value, struct value *ret_value)
{
    struct wide wide;

    if (value.kind == VALUE_FLOAT) {
        *ret_value = value_float(-value.real);
        return 0;
    }
    wide_set(&wide, value);
    wide.negative = !wide.negative;
    return wide_value(run, &wide, ret_value);
}

static int float_power(struct run *run, double x, double y, struct value *ret_value)
{
    double power;

    if (x == 0 && y < 0)
        return run_wrong(run, "0.0 cannot be raised to a negative power");
    if (x < 0 && isfinite(x) && isfinite(y) && y != floor(y))
        return run_wrong(run, "a power that is a complex number is not supported");
    power = pow(x, y);
    if (isinf(power) && isfinite(x) && isfinite(y))
        return run_wrong(run, "the power is too large for a float");
    *ret_value = value_float(power);
    return 0;
}

static int float_arithmetic(struct run *run, enum operation operation, double x, double y,
                            struct value *ret_value)
{
    double rest;

    if (operation == OPERATION_POWER)
        return float_power(run, x, y, ret_value);
    if (operation >= OPERATION_DIVIDE && y == 0)
        return run_wrong(run, "division by zero");
    switch (operation) {
    case OPERATION_ADD:
        *ret_value = value_float(x + y);
        break;
    case OPERATION_SUBTRACT:
        *ret_value = value_float(x - y);
        break;
    case OPERATION_MULTIPLY:
        *ret_value = value_float(x * y);
        break;
    case OPERATION_DIVIDE:
        *ret_value = value_float(x / y);
        break;
    default:
        rest = fmod(x, y);
        if (rest != 0 && (rest < 0) != (y < 0))
            rest += y;
        if (operation == OPERATION_MODULO) {
            *ret_value = value_float(rest == 0 ? copysign(0, y) : rest);
        } else {
            double quotient = (x - rest) / y, whole = floor(quotient);

            *ret_value = value_float(quotient - whole > 0.5 ? whole + 1 : whole);
        }
        break;
    }
    return 0;
}

static int integer_power(struct run *run, struct value base, struct value exponent,
                         struct value *ret_value)
{
    struct value power = value_int(1);
    int64_t left;
    int r = 0;

    if (exponent.kind == VALUE_BIG)
        return run_fault(run, E_TOO_LARGE, "the power is too large");
    left = exponent.integer;
    if (left < 0)
        return float_power(run, number_float(base), (double)left, ret_value);
    if (base.kind == VALUE_INT && (base.integer == 0 || base.integer == 1)) {
        *ret_value = value_int(base.integer == 1 || left == 0);
        return 0;
    }
    for (; left > 0 && r == 0; left >>= 1) {
        if (left & 1)
            r = number_arithmetic(run, OPERATION_MULTIPLY, power, base, &power);
        if (r == 0 && left > 1)
            r = number_arithmetic(run, OPERATION_MULTIPLY, base, base, &base);
    }
    if (r == 0)
        *ret_value = power;
    return r;
}

static int big_arithmetic(struct run *run, enum operation operation, struct value left,
                          struct value right, struct value *ret_value)
{
    struct wide a, b, result, rest;

    if (run_step(run, 200) < 0)
        return E_TOO_LARGE;
    wide_set(&a, left);
    wide_set(&b, right);
    switch (operation) {
    case OPERATION_ADD:
    case OPERATION_SUBTRACT:
        wide_add_signed(&a, &b, operation == OPERATION_SUBTRACT, &result);
        break;
    case OPERATION_MULTIPLY:
        wide_multiply(&a, &b, &result);
        break;
    default:
        if (run_step(run, 100 * (uint64_t)a.count * (b.count + 1)) < 0)
            return E_TOO_LARGE;
        wide_divide_floor(&a, &b, &result, &rest);
        return wide_value(run, operation == OPERATION_MODULO ? &rest : &result, ret_value);
    }
    return wide_value(run, &result, ret_value);
}

int number_arithmetic(struct run *run, enum operation operation, struct value left,
                      struct value right, struct value *ret_value)
{
    int64_t result = 0, x, y;
    bool overflow = true;

    if (left.kind == VALUE_FLOAT || right.kind == VALUE_FLOAT)
        return float_arithmetic(run, operation, number_float(left), number_float(right), ret_value);
    if (left.kind == VALUE_BOOL)
        left = value_int(left.truth);
    if (right.kind == VALUE_BOOL)
        right = value_int(right.truth);
    if (operation == OPERATION_POWER)
        return integer_power(run, left, right, ret_value);
    if (operation >= OPERATION_DIVIDE && right.kind == VALUE_INT && right.integer == 0)
        return run_wrong(run, "division by zero");
    if (operation == OPERATION_DIVIDE)
        return float_arithmetic(run, operation, number_float(left), number_float(right), ret_value);
    if (left.kind != VALUE_INT || right.kind != VALUE_INT)
        return big_arithmetic(run, operation, left, right, ret_value);
    x = left.integer;
    y = right.integer;
    if (operation == OPERATION_ADD)
        overflow = __builtin_add_overflow(x, y, &result);
    else if (operation == OPERATION_SUBTRACT)
        overflow = __builtin_sub_overflow(x, y, &result);
    else if (operation == OPERATION_MULTIPLY)
        overflow = __builtin_mul_overflow(x, y, &result);
    else if (!(x == INT64_MIN && y == -1)) {
        int64_t rest = x % y;
        bool down = rest != 0 && (rest < 0) != (y < 0);

        result = operation == OPERATION_MODULO ? rest + (down ? y : 0) : x / y - down;
        overflow = false;
    }
    if (overflow)
        return big_arithmetic(run, operation, left, right, ret_value);
    *ret_value = value_int(result);
    return 0;
}
