// Roslyn as a program: Compile LIBRARIES OUTPUT SOURCE FOLDER..., where LIBRARIES is the folder of the compiler and the
// others hold the assemblies that the source may use.
//
// It makes an optimized program of one source. Bound late: Mono's mcs, which compiles this, cannot read what Roslyn's
// assemblies refer to.
using System;
using System.Collections;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Reflection;

static class Compile
{
    static Assembly core, csharp;

    static int Main(string[] arguments)
    {
        core = Assembly.LoadFrom(Path.Combine(arguments[0], "Microsoft.CodeAnalysis.dll"));
        csharp = Assembly.LoadFrom(Path.Combine(arguments[0], "Microsoft.CodeAnalysis.CSharp.dll"));
        var references = arguments.Skip(3).SelectMany(folder => Directory.GetFiles(folder, "*.dll"));
        object program = Program(arguments[1], arguments[2], references);
        object result = Call(Core("FileSystemExtensions"), "Emit", program, arguments[1]);
        bool success = (bool)Get(result, "Success");
        foreach (object diagnostic in (IEnumerable)Get(result, "Diagnostics"))
        {
            const int Warning = 2;
            if ((int)Get(diagnostic, "Severity") >= Warning) Console.Error.WriteLine(diagnostic);
        }
        if (!success) File.Delete(arguments[1]);
        return success ? 0 : 1;
    }

    static object Program(string output, string source, IEnumerable<string> references)
    {
        Type kinds = Core("OutputKind"), levels = Core("OptimizationLevel");
        object options = Make(CSharp("CSharpCompilationOptions"), Enum.Parse(kinds, "ConsoleApplication"));
        options = CallOn(options, "WithOptimizationLevel", Enum.Parse(levels, "Release"));
        object tree = Call(CSharp("CSharpSyntaxTree"), "ParseText", File.ReadAllText(source));
        Type reference = Core("MetadataReference");
        return Call(
            CSharp("CSharpCompilation"), "Create", Path.GetFileNameWithoutExtension(output),
            ArrayOf(Core("SyntaxTree"), new[] { tree }),
            ArrayOf(reference, references.Select(path => Call(reference, "CreateFromFile", path)).ToArray()), options);
    }

    static Type Core(string name) { return core.GetType("Microsoft.CodeAnalysis." + name, true); }

    static Type CSharp(string name) { return csharp.GetType("Microsoft.CodeAnalysis.CSharp." + name, true); }

    static Array ArrayOf(Type type, object[] elements)
    {
        Array array = Array.CreateInstance(type, elements.Length);
        Array.Copy(elements, array, elements.Length);
        return array;
    }

    static object Make(Type type, params object[] given)
    {
        ConstructorInfo constructor = Fitting(type.GetConstructors(), given);
        return constructor.Invoke(Filled(constructor, given));
    }

    static object Call(Type type, string name, params object[] given)
    {
        MethodInfo method = Fitting(type.GetMethods().Where(one => one.IsStatic && one.Name == name), given);
        return method.Invoke(null, Filled(method, given));
    }

    static object CallOn(object self, string name, params object[] given)
    {
        MethodInfo method = Fitting(self.GetType().GetMethods().Where(one => one.Name == name), given);
        return method.Invoke(self, Filled(method, given));
    }

    // The first overload that accepts these arguments and whose other parameters are optional.
    static T Fitting<T>(IEnumerable<T> methods, object[] given) where T : MethodBase
    {
        return methods.First(method =>
        {
            ParameterInfo[] parameters = method.GetParameters();
            return parameters.Length >= given.Length && parameters.Skip(given.Length).All(one => one.IsOptional)
                && given.Zip(parameters, (value, one) => one.ParameterType.IsInstanceOfType(value)).All(fits => fits);
        });
    }

    static object[] Filled(MethodBase method, object[] given)
    {
        int missing = method.GetParameters().Length - given.Length;
        return given.Concat(Enumerable.Repeat<object>(Type.Missing, missing)).ToArray();
    }

    static object Get(object self, string property) { return self.GetType().GetProperty(property).GetValue(self, null); }
}
