/*
 * Which gem a file belongs to, known by its path alone: a recording is read far from its files.
 *
 * First match holds:
 *   <internal:kernel>                            "(ruby)": Ruby's own code
 *   (eval), (eval at F:1), (erb), <compiled>     "(eval)": evaluated, without a file of its own
 *   .../bundler/gems/NAME-SHA/...                NAME, the last such part of the path
 *   .../gems/NAME-VERSION[-PLATFORM]/...         NAME, the last such part of the path
 *   .../specifications/[default/]NAME-VERSION.gemspec   NAME
 *   .../vendor_ruby/[X.Y.Z/]NAME[.rb|/...]       NAME: Debian's packages; site_ruby is the same.
 *                                                rubygems is Ruby's own
 *   .../lib/[TRIPLET/]ruby/X.Y.Z/...             "(ruby)": the standard library
 *   all else                                     "(app)"
 * So code that a program keeps in a folder of its own, also a gem by `path:` in a Gemfile, is the
 * program.
 */
#ifndef SCRY_VIEW_GEM_H
#define SCRY_VIEW_GEM_H

#include <stddef.h>

struct scry_buf;

/* The name, not NUL terminated, and its length. It lies in `path` or is a literal; never NULL. */
const char *scry_gem_name(const char *path, size_t *ret_length);

/* The part of the path that people need: of a file of a gem, from its name and version on
 * ("activesupport-6.1.7/lib/..."); of one of Debian's packages, from its folder on; else all. */
const char *scry_gem_path(const char *path);

/* Appends that part, for people; data has the whole path. Control characters are the caller's. */
void scry_gem_put_path(const char *path, struct scry_buf *buf);

#endif
