/* The agent's bytes inside scry: no agent file is installed. */
	.section .rodata
	.globl	scry_agent_image
	.globl	scry_agent_image_end
	.balign	16
scry_agent_image:
	.incbin	"agent.so"
scry_agent_image_end:
	.section .note.GNU-stack, "", @progbits
