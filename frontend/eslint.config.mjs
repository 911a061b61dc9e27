// `npm run lint`: the recommended rules, with type information where they need it. Prettier checks the format.
import js from '@eslint/js';
import tseslint from 'typescript-eslint';

export default tseslint.config(
  { ignores: ['node_modules', 'generated'] },
  js.configs.recommended,
  {
    files: ['src/**/*.{ts,tsx}'],
    extends: [tseslint.configs.recommended],
    languageOptions: {
      parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname },
    },
    rules: {
      // A promise that nothing waits for hides its errors; `void` marks intended ones.
      '@typescript-eslint/no-floating-promises': 'error',
      '@typescript-eslint/no-unused-vars': [
        'error',
        { argsIgnorePattern: '^_', varsIgnorePattern: '^_' },
      ],
      // noUncheckedIndexedAccess makes `!` necessary after bounds checks.
      '@typescript-eslint/no-non-null-assertion': 'off',
      // Terminal output contains control characters.
      'no-control-regex': 'off',
      eqeqeq: ['error', 'always', { null: 'ignore' }],
    },
  },
  { files: ['tests/**/*.ts'], extends: [tseslint.configs.recommended] },
  {
    files: ['**/*.mjs'],
    languageOptions: { globals: globals() },
    rules: {
      'no-control-regex': 'off',
      'no-unused-vars': ['error', { varsIgnorePattern: '^_$' }],
      eqeqeq: 'error',
    },
  },
);

/** Globals of node, and of the browser for code that runs inside a page. */
function globals() {
  const names = [
    'Buffer',
    'URL',
    'URLSearchParams',
    'console',
    'process',
    'setInterval',
    'setTimeout',
    'document',
    'getComputedStyle',
    'history',
    'innerWidth',
    'location',
    'performance',
    'requestAnimationFrame',
    'scrollBy',
    'scrollTo',
    'scrollY',
    'window',
    'Event',
  ];
  return Object.fromEntries(names.map((name) => [name, 'readonly']));
}
