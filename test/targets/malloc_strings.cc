// Strings on the heap: nearly all that is asked of malloc is asked for by operator new.
#include <string>
#include <vector>

int main()
{
	std::vector<std::string *> all;

	for (int i = 0; i < 2000; i++)
		all.push_back(new std::string(500, 'x'));
	for (std::string *one : all)
		delete one;
	return 0;
}
