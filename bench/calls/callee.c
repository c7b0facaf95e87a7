/* What the benchmark calls: a function of a few instructions, behind the PLT. */
unsigned long callee(unsigned long x);

__attribute__((noinline, noclone)) unsigned long callee(unsigned long x)
{
	__asm__ volatile("");
	return x * 3 + 1;
}
