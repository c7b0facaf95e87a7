/*
 * Which gem a file belongs to. See gem.h.
 */
#include "view/gem.h"

#include "base/buf.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

static const char ruby[] = "(ruby)";
static const char eval[] = "(eval)";
static const char app[] = "(app)";

static const char *literal(const char *name, size_t *ret_length)
{
	*ret_length = strlen(name);
	return name;
}

static bool begins(const char *text, const char *with)
{
	return !strncmp(text, with, strlen(with));
}

/* Length of "3.1.0" or "3.4.0+1" at `text`; 0 when it is not a version of Ruby's libraries. */
static size_t version_length(const char *text)
{
	size_t len = strspn(text, "0123456789.");

	if (!isdigit((unsigned char)text[0]) || !memchr(text, '.', len))
		return 0;
	return len + strcspn(text + len, "/");
}

/* "rack-2.2.22", "nokogiri-1.15.4-x86_64-linux": what is before the first version. */
static size_t name_before_version(const char *part, size_t len)
{
	size_t i, digits;

	for (i = 1; i + 1 < len; i++) {
		if (part[i] != '-')
			continue;
		digits = strspn(part + i + 1, "0123456789");
		if (digits && strchr("./-", part[i + 1 + digits]))
			return i;
	}
	return 0;
}

/* "rails-1a2b3c4d5e6f": what is before the abbreviated commit. */
static size_t name_before_commit(const char *part, size_t len)
{
	size_t at = len;

	while (at > 0 && isxdigit((unsigned char)part[at - 1]))
		at--;
	return at > 1 && part[at - 1] == '-' && len - at >= 7 && len - at <= 40 ? at - 1 : 0;
}

static size_t gem_in_part(const char *path, const char *part, size_t len)
{
	static const char bundler[] = "/bundler/gems/";
	size_t before = (size_t)(part - path), name = 0;

	if (before >= sizeof(bundler) - 1 &&
	    !memcmp(part - (sizeof(bundler) - 1), bundler, sizeof(bundler) - 1))
		name = name_before_commit(part, len);
	return name ? name : name_before_version(part, len);
}

/* The last ".../gems/NAME-VERSION/..." of the path. */
static const char *installed_gem(const char *path, size_t *ret_length)
{
	const char *at, *found = NULL;

	for (at = path; (at = strstr(at, "/gems/")); at += 5) {
		const char *part = at + 6;
		size_t len = strcspn(part, "/"), name;

		name = part[len] == '/' ? gem_in_part(path, part, len) : 0;
		if (!name)
			continue;
		found = part;
		*ret_length = name;
	}
	return found;
}

/* A gem's description is none of its code: rubygems reads it, whether the gem is used or not. */
static bool is_gem_description(const char *path)
{
	static const char suffix[] = ".gemspec";
	const char *name = strrchr(path, '/');
	size_t len = strlen(path), end = sizeof(suffix) - 1;

	return strstr(path, "/specifications/") && len - (size_t)(name + 1 - path) > end &&
	       !strcmp(path + len - end, suffix);
}

/* What follows `folder`, a library folder without versions in names. */
static const char *vendored(const char *path, const char *folder, size_t *ret_length)
{
	const char *at = strstr(path, folder);
	size_t version;

	if (!at)
		return NULL;
	at += strlen(folder);
	version = version_length(at);
	if (version && at[version] == '/')
		at += version + 1;
	*ret_length = strcspn(at, "/");
	if (!at[*ret_length] && *ret_length > 3 && !memcmp(at + *ret_length - 3, ".rb", 3))
		*ret_length -= 3;
	if (*ret_length == 8 && begins(at, "rubygems"))
		return literal(ruby, ret_length);
	return *ret_length ? at : NULL;
}

/* ".../lib/ruby/3.1.0/...", ".../lib/x86_64-linux-gnu/ruby/3.1.0/..." */
static bool is_standard_library(const char *path)
{
	const char *at;

	for (at = path; (at = strstr(at, "/ruby/")); at += 5) {
		const char *from = at, *version = at + 6;
		size_t len = version_length(version);

		if (!len || version[len] != '/')
			continue;
		if (at - path >= 4 && begins(at - 4, "/lib"))
			return true;
		while (from > path && from[-1] != '/')
			from--;
		if (from - path >= 5 && begins(from - 5, "/lib/"))
			return true;
	}
	return false;
}

const char *scry_gem_name(const char *path, size_t *ret_length)
{
	const char *name;

	if (begins(path, "<internal:"))
		return literal(ruby, ret_length);
	if (begins(path, "(eval") || !strcmp(path, "(erb)") || !strcmp(path, "<compiled>"))
		return literal(eval, ret_length);
	name = installed_gem(path, ret_length);
	if (!name && is_gem_description(path))
		return literal(ruby, ret_length);
	if (!name)
		name = vendored(path, "/vendor_ruby/", ret_length);
	if (!name)
		name = vendored(path, "/site_ruby/", ret_length);
	if (name)
		return name;
	return literal(is_standard_library(path) ? ruby : app, ret_length);
}

const char *scry_gem_path(const char *path)
{
	static const char *const folders[] = {"/vendor_ruby/", "/site_ruby/"};
	size_t length;
	const char *at;

	if (path[0] == '<' ||
	    path[0] == '(') /* <internal:PATH>, (eval at PATH:1): words around it */
		return path;
	if (scry_gem_name(path, &length) == ruby) /* rubygems beside the packages: no gem's */
		return path;
	at = installed_gem(path, &length);
	for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]) && !at; i++) {
		size_t version;

		at = strstr(path, folders[i]);
		at = at ? at + strlen(folders[i]) : NULL;
		version = at ? version_length(at) : 0;
		if (version && at[version] == '/')
			at += version + 1;
	}
	return at && *at ? at : path;
}

void scry_gem_put_path(const char *path, struct scry_buf *buf)
{
	path = scry_gem_path(path);
	scry_buf_append(buf, path, strlen(path));
}
