/* gbnf.h -- grammars in the notation of llama.cpp ("GBNF").
 *
 *     root  ::= "[" ws ( value ( "," ws value )* )? "]"      # the text must match `root`
 *     value ::= [0-9]{1,3} | "\"" [^"\\]* "\"" | .
 *     ws    ::= [ \t\n]*
 *
 * After llama.cpp's grammars/README.md: names of letters, digits, "-" and "_"; in literals and
 * classes the escapes \t \r \n \\ \" \[ \] \xHH \uHHHH \UHHHHHHHH; `.` is any character, a newline
 * too; * + ? {m} {m,} {m,n} repeat the whole item before them; a newline ends a rule except within
 * parentheses, after `|` and after `::=`. A rule is defined once. Tokens (<...>) are refused. */
#ifndef WEFT_GBNF_H
#define WEFT_GBNF_H

#include <stddef.h>

#include "config/base/fault.h"
#include "engine/text/grammar.h"

/* The caller owns *ret_grammar, whose root is set. Faults: E_INVALID or E_UNSUPPORTED with line and
 * column, E_TOO_LARGE, E_MEMORY. Left recursion is found later, by automaton_open(). */
int gbnf_parse(const char *text, size_t bytes, struct grammar **ret_grammar, struct fault *fault);
/* The same as a part of a larger grammar: *ret_node refers to `root`. */
int gbnf_build(struct grammar *grammar, const char *text, size_t bytes, int32_t *ret_node,
               struct fault *fault);

#endif
