/* A system call of a library that may be unloaded: see straight.c. */
__asm__(".text; .globl hot; .type hot, @function; hot: .cfi_startproc\n"
	"mov $110, %eax; syscall; ret\n"
	".cfi_endproc; .size hot, . - hot");
