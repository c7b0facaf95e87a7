/* See ruby_types.h. */
#include "vm/ruby_types.h"

const struct scry_ruby_type scry_ruby_types[SCRY_RUBY_TYPES] = {
	[0x01] = {"T_OBJECT", "rb_cObject", "Object"},
	[0x02] = {"T_CLASS", "rb_cClass", "Class"},
	[0x03] = {"T_MODULE", "rb_cModule", "Module"},
	[0x04] = {"T_FLOAT", "rb_cFloat", "Float"},
	[0x05] = {"T_STRING", "rb_cString", "String"},
	[0x06] = {"T_REGEXP", "rb_cRegexp", "Regexp"},
	[0x07] = {"T_ARRAY", "rb_cArray", "Array"},
	[0x08] = {"T_HASH", "rb_cHash", "Hash"},
	[0x09] = {"T_STRUCT", "rb_cRange", "Range"},
	[0x0a] = {"T_BIGNUM", "rb_cInteger", "Integer"},
	[0x0b] = {"T_FILE", "rb_cFile", "File"},
	[0x0c] = {"T_DATA", NULL, NULL},
	[0x0d] = {"T_MATCH", "rb_cMatch", "MatchData"},
	[0x0e] = {"T_COMPLEX", "rb_cComplex", "Complex"},
	[0x0f] = {"T_RATIONAL", "rb_cRational", "Rational"},
	[0x14] = {"T_SYMBOL", "rb_cSymbol", "Symbol"},
};

uint64_t scry_ruby_core_class(const struct scry_ruby *ruby, uint32_t type)
{
	const char *symbol = type < SCRY_RUBY_TYPES ? scry_ruby_types[type].symbol : NULL;

	return symbol ? scry_ruby_symbol(ruby, symbol) : 0;
}
