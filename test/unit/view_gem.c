/* Gems told from paths: real ones of Debian 12, rubygems, bundler, rbenv, and traps. */
#include "view/gem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const struct {
	const char *path, *gem;
} rows[] = {
	/* Debian: packages ruby-sinatra, ruby-rack, puma, ruby-tilt, ruby-xmlrpc, libruby3.1 */
	{"/usr/share/rubygems-integration/all/gems/sinatra-3.0.5/lib/sinatra/base.rb", "sinatra"},
	{"/usr/share/rubygems-integration/all/gems/rack-2.2.22/lib/rack/handler/fastcgi.rb",
	 "rack"},
	{"/usr/share/rubygems-integration/all/gems/rack-protection-3.0.5/lib/rack/protection.rb",
	 "rack-protection"},
	{"/usr/lib/x86_64-linux-gnu/rubygems-integration/3.1.0/gems/puma-5.6.5/lib/puma/client.rb",
	 "puma"},
	{"/usr/lib/ruby/vendor_ruby/tilt.rb", "tilt"},
	{"/usr/lib/ruby/vendor_ruby/tilt/erb.rb", "tilt"},
	{"/usr/lib/ruby/vendor_ruby/xmlrpc/client.rb", "xmlrpc"},
	{"/usr/lib/x86_64-linux-gnu/ruby/vendor_ruby/3.1.0/msgpack/msgpack.rb", "msgpack"},
	{"/usr/lib/ruby/vendor_ruby/rubygems.rb", "(ruby)"},
	{"/usr/lib/ruby/vendor_ruby/rubygems/specification.rb", "(ruby)"},
	{"/usr/lib/ruby/gems/3.1.0/gems/rake-13.0.6/lib/rake/task.rb", "rake"},
	{"/usr/lib/ruby/3.1.0/set.rb", "(ruby)"},
	{"/usr/lib/ruby/3.1.0/rdoc/markdown.rb", "(ruby)"},
	{"/usr/lib/ruby/3.1.0/bundler/cli/info.rb", "(ruby)"},
	{"/usr/lib/x86_64-linux-gnu/ruby/3.1.0/rbconfig.rb", "(ruby)"},
	{"/usr/lib/ruby/gems/3.1.0/specifications/default/irb-1.4.1.gemspec", "(ruby)"},
	{"/usr/share/rubygems-integration/all/specifications/rack-2.2.22.gemspec", "(ruby)"},
	{"/usr/share/rubygems-integration/all/specifications/rack-2.2.22.rb", "(app)"},
	/* rubygems, bundler, version managers, containers */
	{"/var/lib/gems/3.1.0/gems/json-2.7.1/lib/json/common.rb", "json"},
	{"/usr/local/bundle/gems/nokogiri-1.15.4-x86_64-linux/lib/nokogiri.rb", "nokogiri"},
	{"/srv/app/vendor/bundle/ruby/3.1.0/gems/activerecord-7.1.2/lib/active_record.rb",
	 "activerecord"},
	{"/usr/local/bundle/bundler/gems/rails-1a2b3c4d5e6f/activejob/lib/active_job.rb", "rails"},
	{"/usr/local/bundle/bundler/gems/x-deadbee/lib/x.rb", "x"},
	{"/home/u/.rbenv/versions/3.1.2/lib/ruby/3.1.0/json/common.rb", "(ruby)"},
	{"/home/u/.rbenv/versions/3.1.2/lib/ruby/gems/3.1.0/gems/net-http2-0.18.5/lib/a.rb",
	 "net-http2"},
	{"/opt/ruby/lib/ruby/3.4.0+1/erb.rb", "(ruby)"},
	{"/opt/ruby/lib/ruby/site_ruby/3.4.0/rubygems/version.rb", "(ruby)"},
	{"/usr/local/lib/site_ruby/mine/a.rb", "mine"},
	{"/g/gems/two-2fa-1.0.pre2/lib/a.rb", "two-2fa"},
	{"/g/gems/a-1/lib/a.rb", "a"},
	/* a program in a folder called gems, with its gems below; the last one counts */
	{"/home/gems/shop-2/vendor/bundle/ruby/3.1.0/gems/rack-3.0.8/lib/rack.rb", "rack"},
	/* Ruby's own and evaluated code */
	{"<internal:kernel>", "(ruby)"},
	{"<internal:/usr/lib/ruby/vendor_ruby/rubygems/core_ext/kernel_require.rb>", "(ruby)"},
	{"(eval)", "(eval)"},
	{"(eval at /srv/app/a.rb:3)", "(eval)"},
	{"(erb)", "(eval)"},
	{"<compiled>", "(eval)"},
	/* the program */
	{"-e", "(app)"},
	{"app.rb", "(app)"},
	{"/srv/app/models/user.rb", "(app)"},
	{"/srv/specifications/.gemspec", "(app)"},
	{"/srv/ruby/3.1.0/app.rb", "(app)"},
	{"/srv/lib/ruby/app.rb", "(app)"},
	{"/srv/gems/app.rb", "(app)"},
	{"/srv/gems/shop/app.rb", "(app)"},
	{"/srv/gems/rack-2.2.22", "(app)"},
	{"/srv/gems/-1.0/app.rb", "(app)"},
	{"/srv/bundler/gems/-1a2b3c4d5e6f/app.rb", "(app)"},
	{"/srv/vendor_ruby/", "(app)"},
	{"", "(app)"},
	{"/gems/", "(app)"},
};

static void names(void **state)
{
	size_t i, len;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const char *gem = scry_gem_name(rows[i].path, &len);

		if (len != strlen(rows[i].gem) || memcmp(gem, rows[i].gem, len))
			fail_msg("%s: %.*s, not %s", rows[i].path, (int)len, gem, rows[i].gem);
	}
}

static void paths(void **state)
{
	static const struct {
		const char *path, *shown;
	} all[] = {
		{"/var/lib/gems/3.1.0/gems/activesupport-6.1.7/lib/a.rb",
		 "activesupport-6.1.7/lib/a.rb"},
		{"/srv/gems/outer-1.0/gems/inner-2.0/b.rb", "inner-2.0/b.rb"},
		{"/usr/lib/ruby/vendor_ruby/puma/server.rb", "puma/server.rb"},
		{"/usr/lib/ruby/vendor_ruby/3.1.0/ox.rb", "ox.rb"},
		{"/usr/lib/ruby/3.1.0/set.rb", "/usr/lib/ruby/3.1.0/set.rb"},
		{"/usr/lib/ruby/vendor_ruby/rubygems.rb", "/usr/lib/ruby/vendor_ruby/rubygems.rb"},
		{"/usr/lib/ruby/vendor_ruby/rubygems/specification.rb",
		 "/usr/lib/ruby/vendor_ruby/rubygems/specification.rb"},
		{"/srv/app.rb", "/srv/app.rb"},
		{"<internal:/usr/lib/ruby/vendor_ruby/rubygems/r.rb>",
		 "<internal:/usr/lib/ruby/vendor_ruby/rubygems/r.rb>"},
		{"(eval at /srv/gems/erb-4.0/lib/erb.rb:3)",
		 "(eval at /srv/gems/erb-4.0/lib/erb.rb:3)"},
		{"/usr/lib/ruby/vendor_ruby/", "/usr/lib/ruby/vendor_ruby/"},
		{"", ""},
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		assert_string_equal(scry_gem_path(all[i].path), all[i].shown);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(names), cmocka_unit_test(paths)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
