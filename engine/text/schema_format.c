/* schema_format.c -- the formats that are enforced, as regular expressions over the whole text.
 *
 * Each follows the document that JSON schema names for it (draft 2020-12 validation, section 7.3),
 * and where validators are stricter, them: years begin at 0001, a leap second is left out. What a
 * document leaves open is bounded (an address of mail is no longer than people write them). */
#include <string.h>

#include "engine/text/schema_internal.h"

/* RFC 3339: the days of each month, and 29 February of leap years. */
#define YEAR "([0-9]{3}[1-9]|[0-9]{2}[1-9][0-9]|[0-9][1-9][0-9]{2}|[1-9][0-9]{3})"
#define LEAP "([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)"
#define DATE                                                                                     \
    "(" YEAR "-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-" \
    "(0[1-9]|1[0-9]|2[0-8]))|" LEAP "-02-29)"
#define CLOCK "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?"
#define ZONE  "(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"

/* RFC 1123 */
#define LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define HOST  LABEL "(\\." LABEL "){0,7}"

/* RFC 2673, RFC 4291 */
#define BYTE "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define IPV4 BYTE "(\\." BYTE "){3}"
#define H16  "[0-9A-Fa-f]{1,4}"
#define IPV6                                                                                 \
    "((" H16 ":){7}" H16 "|(" H16 ":){6}" IPV4 "|(" H16 ":){1,7}:|:(:" H16 "){1,7}|::|(" H16 \
    ":){1,6}:" H16 "|(" H16 ":){1,5}(:" H16 "){2}|(" H16 ":){1,4}(:" H16 "){3}|(" H16        \
    ":){1,3}(:" H16 "){4}|(" H16 ":){1,2}(:" H16 "){5}|" H16 ":(:" H16 "){6})"

/* RFC 3339, appendix A; a part at least */
#define DURATION_TIME \
    "T([0-9]{1,9}H([0-9]{1,9}M([0-9]{1,9}S)?)?|[0-9]{1,9}M([0-9]{1,9}S)?|[0-9]{1,9}S)"
#define DURATION_DATE \
    "([0-9]{1,9}Y([0-9]{1,9}M([0-9]{1,9}D)?)?|[0-9]{1,9}M([0-9]{1,9}D)?|[0-9]{1,9}D)"

/* RFC 3986 */
#define URI_CHAR "([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
#define URI_TAIL "(/" URI_CHAR "*)*(\\?(" URI_CHAR "|[/?])*)?(#(" URI_CHAR "|[/?])*)?"
#define URI                                                                               \
    "[A-Za-z][A-Za-z0-9+.-]{0,15}:(//([A-Za-z0-9._~-]+@)?" HOST "(:[0-9]{1,5})?" URI_TAIL \
    "|" URI_CHAR "+" URI_TAIL ")"

static const struct {
    const char *name;
    const char *expression;
} formats[] = {
    {"date", DATE},
    {"time", CLOCK ZONE},
    {"date-time", DATE "T" CLOCK ZONE},
    {"duration", "P(" DURATION_DATE "(" DURATION_TIME ")?|" DURATION_TIME "|[0-9]{1,9}W)"},
    /* RFC 5321: a dotted local part, and a host's name */
    {"email",
     "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,32}(\\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,32}){0,3}@" HOST},
    {"hostname", HOST},
    {"ipv4", IPV4},
    {"ipv6", IPV6},
    {"uuid", "[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"},
    {"uri", URI},
    {"json-pointer", "(/([^/~]|~[01])*)*"},
};

const char *schema_format_find(const char *name)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcmp(formats[i].name, name) == 0)
            return formats[i].expression;
    return NULL;
}
