/* void prototype_switch(void **save_sp, void *sp): what any switch has to do at least. */
	.text
	.globl prototype_switch
	.type prototype_switch, @function
	.p2align 6
prototype_switch:
	push %rbp
	push %rbx
	push %r12
	push %r13
	push %r14
	push %r15
	mov %rsp, (%rdi)
	mov %rsi, %rsp
	pop %r15
	pop %r14
	pop %r13
	pop %r12
	pop %rbx
	pop %rbp
	pop %rcx
	jmp *%rcx
	.size prototype_switch, . - prototype_switch
	.globl prototype_begin
	.type prototype_begin, @function
prototype_begin:
	mov %r12, %rdi
	call *%r13
	ud2
	.size prototype_begin, . - prototype_begin
	.section .note.GNU-stack, "", @progbits
