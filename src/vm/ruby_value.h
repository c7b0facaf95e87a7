/*
 * What is the same in every Ruby from 1.9 to 4.x: an object's first word holds its type in the low
 * five bits, its second word its class (include/ruby/internal/value_type.h, fl_type.h). All else is
 * learned.
 */
#ifndef SCRY_VM_RUBY_VALUE_H
#define SCRY_VM_RUBY_VALUE_H

#include <stddef.h>

#define SCRY_RUBY_TYPE_MASK 0x1fu
#define SCRY_RUBY_T_OBJECT 0x01u
#define SCRY_RUBY_T_CLASS 0x02u
#define SCRY_RUBY_T_MODULE 0x03u
#define SCRY_RUBY_T_STRING 0x05u
#define SCRY_RUBY_T_ARRAY 0x07u
#define SCRY_RUBY_T_DATA 0x0cu
#define SCRY_RUBY_T_IMEMO 0x1au
#define SCRY_RUBY_T_ICLASS 0x1cu
#define SCRY_RUBY_CLASS 8u	/* offset of the class word */
#define SCRY_RUBY_NIL_MAX 0x40u /* nil, false, true and undef are below this in every version */

/* Of a String's text, however it was read: what is not printable UTF-8 becomes '?'. */
void scry_ruby_make_printable(char *text, size_t size);

#endif
