/* See prototypes.h: results that are known. */
#include "prototypes.h"

int p_integers(int a, unsigned int b, long c, unsigned long d, short e, unsigned short f, char g,
	       int h)
{
	return a + (int)b + (int)c + (int)d + e + f + g + h;
}
double p_floats(float a, double b, int c)
{
	return (double)a + b + c;
}
float p_float(float a)
{
	return a * 2;
}
double p_many_floats(double a, double b, double c, double d, double e, double f, double g, double h,
		     double i, int j)
{
	return a + b + c + d + e + f + g + h + i + j;
}
const char *p_strings(const char *a, const char *b)
{
	return a ? a : b;
}
struct small p_structs(int a, struct mixed b, double c)
{
	return (struct small){(float)(a + (double)b.f + c), 'x', b.text[0]};
}
struct big p_big(struct big a, int b)
{
	a.a += b;
	return a;
}
void p_array(const int *values, int count)
{
	(void)values;
	(void)count;
}
void p_list(const struct list *first)
{
	(void)first;
}
int p_named(const struct named *named)
{
	return (int)named->count;
}
int p_enum(int value)
{
	return value;
}
int p_color(enum color color)
{
	return (int)color;
}
int p_enum_short(short value)
{
	return value;
}
int p_out(int *number, const char **text, const char *in)
{
	*number = 42;
	*text = "result";
	return in[0];
}
long p_read(char *to, long room)
{
	for (long i = 0; i < room; i++)
		to[i] = (char)('a' + i % 26);
	return room;
}
long p_length(const char *text, int length)
{
	return text[0] + length;
}
int p_format(const char *format, ...)
{
	return format[0];
}
int p_out_format(char *to, const char *format, ...)
{
	to[0] = format[0];
	to[1] = 0;
	return 1;
}
int p_bad(const char *text)
{
	return text != 0;
}
int p_stack(int a, int b, int c, int d, int e, int f, int g, int h, long i, const char *j)
{
	return a + b + c + d + e + f + g + h + (int)i + j[0];
}
void p_void(void)
{
}
char p_char(char c)
{
	return c;
}
int p_lenses(int o, int h, int hidden, int b, unsigned long bits, unsigned long others,
	     long guessed)
{
	return o + h + hidden + b + (int)bits + (int)others + (int)guessed;
}
const char *p_texts(const char *const *texts)
{
	return texts[0];
}
void *p_address(void *a)
{
	return a;
}
__attribute__((noinline)) int p_outer(int *number, int value)
{
	*number = (int)(long)p_address((void *)(long)value);
	return value;
}
int p_bits(const unsigned long *bits)
{
	return (int)bits[0];
}
__attribute__((noinline)) int p_tail(int *number)
{
	return p_outer(number, *number + 1);
}
