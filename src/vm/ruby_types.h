/*
 * The types that an object's first word may say, and the class that most objects of a type have.
 * Source: include/ruby/internal/value_type.h, the same from 1.9 to 4.x.
 */
#ifndef SCRY_VM_RUBY_TYPES_H
#define SCRY_VM_RUBY_TYPES_H

#include <stdint.h>

#include "vm/ruby.h"
#include "vm/ruby_value.h"

#define SCRY_RUBY_TYPES (SCRY_RUBY_TYPE_MASK + 1u)

struct scry_ruby_type {
	const char *name;   /* "T_STRING"; NULL: none that Ruby code could ever see */
	const char *symbol; /* exported variable that holds the class; NULL: there is none */
	const char *klass;  /* what that class is called */
};

extern const struct scry_ruby_type scry_ruby_types[SCRY_RUBY_TYPES];

/* Run-time address of the word that holds the class which most objects of a type have
 * (vm/ruby_types.h); 0: there is none. */
uint64_t scry_ruby_core_class(const struct scry_ruby *ruby, uint32_t type);

#endif
