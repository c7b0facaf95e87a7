/* Functions of every kind of argument and result, for test/cli/prototypes.bats. */
#ifndef PROTOTYPES_H
#define PROTOTYPES_H

struct small {
	float f;
	char a, b;
};
struct mixed {
	char text[6];
	float f;
};
struct list {
	int value;
	struct list *next;
};
struct big {
	long a, b, c;
};
enum color { RED, GREEN = 2, BLUE };
struct named {
	unsigned long count;
	const int *values;
	const char *name;
};

int p_integers(int a, unsigned int b, long c, unsigned long d, short e, unsigned short f, char g,
	       int h);
double p_floats(float a, double b, int c);
float p_float(float a);
double p_many_floats(double a, double b, double c, double d, double e, double f, double g, double h,
		     double i, int j);
const char *p_strings(const char *a, const char *b);
struct small p_structs(int a, struct mixed b, double c);
struct big p_big(struct big a, int b);
void p_array(const int *values, int count);
void p_list(const struct list *first);
int p_named(const struct named *named);
int p_enum(int value);
int p_color(enum color color);
int p_enum_short(short value);
int p_out(int *number, const char **text, const char *in);
long p_read(char *to, long room);
long p_length(const char *text, int length);
int p_format(const char *format, ...);
int p_out_format(char *to, const char *format, ...);
int p_bad(const char *text);
int p_stack(int a, int b, int c, int d, int e, int f, int g, int h, long i, const char *j);
void p_void(void);
char p_char(char c);
int p_lenses(int o, int h, int hidden, int b, unsigned long bits, unsigned long others,
	     long guessed);
const char *p_texts(const char *const *texts);
void *p_address(void *a);
int p_outer(int *number, int value);
int p_bits(const unsigned long *bits);
int p_tail(int *number);

#endif
