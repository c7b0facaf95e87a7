/*
 * A program that is a Ruby as far as its names tell, and an old one: what it cannot parse it says,
 * as 1.9.3 does. Without arguments it says "runs" and sleeps.
 */
#include <stdio.h>
#include <unistd.h>

const char ruby_version[] = "1.9.3";
const char ruby_description[] = "ruby 1.9.3p551 (2014-11-13 revision 48407) [x86_64-linux]";

int main(int argc, char **argv)
{
	(void)argv;
	if (argc > 1) {
		fputs("-:17: syntax error, unexpected ':', expecting ')'\n", stderr);
		return 1;
	}
	puts("runs");
	fflush(stdout);
	pause();
	return 0;
}
